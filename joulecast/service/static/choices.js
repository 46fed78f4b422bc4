// Choices side by side: a card for each GPU, how they compare, and the best of all.
import { byId, h, mhz, series, si, times } from "./format.js";

const QUANTITIES = [
  ["time", "time_s", "s"], ["power", "power_w", "W"], ["energy", "energy_j", "J"], ["energy × time", "edp_js", "Js"],
];

/** A card for each GPU. */
export function cards(box, gpus, predictions, tools) {
  const most = Object.fromEntries(QUANTITIES.map(([, name]) => [name, Math.max(...predictions.map((p) => p.interval?.[name][1] ?? p[name]))]));
  box.replaceChildren(...gpus.map((gpu, i) => card(gpu, i, predictions[i], most, tools)));
}

function card(gpu, place, prediction, most, tools) {
  const rows = tools.rowsOf(gpu);
  const held = prediction.held_clock_mhz;
  const notes = [...prediction.notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`)];
  if (held < 0.995 * prediction.clock_mhz) notes.unshift(`Its power cap of ${si(prediction.power_limit_w, "W")} holds it at ${Math.round(held)} MHz.`);
  return h("article", { class: "card", "--series": series(place) },
    h("h3", {}, gpu.short_name),
    h("span", { class: gpu.measured ? "badge known" : "badge" }, gpu.measured ? `measured: ${gpu.measured}` : "never measured"),
    clockChoice(gpu, rows, tools),
    h("dl", {}, QUANTITIES.map(([title, name, unit]) => quantity(title, prediction, name, unit, most[name]))),
    h("div", { class: "notes" }, notes.map((note) => h("p", {}, note))));
}

function quantity(title, prediction, name, unit, most) {
  const value = prediction[name];
  const range = prediction.interval?.[name];
  return h("div", { class: "quantity", "data-quantity": name },
    h("dt", {}, title), h("dd", { class: "value" }, si(value, unit)),
    h("dd", { class: "gauge", "aria-hidden": "true" }, h("i", { "--to": value / most }),
      range ? h("b", { "--low": range[0] / most, "--high": range[1] / most }) : null),
    h("dd", { class: "range", title: range ? prediction.interval.basis : null }, range ? `${100 * prediction.interval.level} %: ${si(range[0], unit)} to ${si(range[1], unit)}` : "no interval known"));
}

function clockChoice(gpu, rows, { optimum, clocks, choose, objective }) {
  const chosen = clocks[gpu.name] ?? "default";
  const option = (value, text) => h("option", { value, selected: String(value) === String(chosen) }, text);
  return h("select", { "aria-label": `Clock of ${gpu.short_name}`, onchange: (event) => choose(gpu, event.target.value) },
    option("default", `${mhz(rows[0].default_clock_mhz)}, default`),
    option("optimum", `${mhz(optimum(rows).clock_mhz)}, least ${objective}`),
    ...rows.map((row) => option(row.clock_mhz, mhz(row.clock_mhz))));
}

/** How the others compare with the first, in a sentence. */
export function comparison(gpus, predictions) {
  const [first, ...others] = predictions;
  if (!others.length) return "";
  const told = others.map((p, i) =>
    `${gpus[i + 1].short_name} takes ${times(p.time_s / first.time_s)} the time and ${times(p.energy_j / first.energy_j)} the energy`);
  return `Beside ${gpus[0].short_name}, ${told.join("; ")}.`;
}

/** The best clock of each GPU, best first. */
export function bestTable(choices, mine, question, all) {
  const shown = all ? choices : choices.filter((choice, i) => i < 8 || choice.gpu in mine);
  const number = (text) => h("td", { class: "number" }, text);
  const unit = { energy: "J", time: "s", edp: "Js", ed2p: "Js2", carbon: "g" }[question.objective];
  const valued = !["energy", "time"].includes(question.objective);
  const cost = question.objective === "cost";
  const value = (choice) => (cost ? `${Number((1e6 * choice.value).toPrecision(3))}` : si(choice.value, unit));
  // What is asked for most stands first: a phone shows the first columns.
  const head = ["", "GPU", ...(valued ? [cost ? "cost of a million" : question.objectiveName] : []), "energy", "time", "power", "clock", "memory", ""];
  byId("best").replaceChildren(
    h("caption", { class: "unseen" }, `The best clock of each GPU by least ${question.objectiveName}`),
    h("thead", {}, h("tr", {}, head.map((title, i) => (title
      ? h("th", { scope: "col", class: i > 1 ? "number" : null }, title) : h("td", {}))))),
    h("tbody", {}, shown.map((choice) => h("tr", { class: choice.gpu in mine ? "mine" : null, "--series": choice.gpu in mine ? series(mine[choice.gpu]) : null },
      h("td", { class: "number" }, `${choices.indexOf(choice) + 1}`),
      h("th", { scope: "row" }, choice.alias), valued ? number(value(choice)) : null, number(si(choice.energy_j, "J")),
      number(si(choice.time_s, "s")), number(si(choice.power_w, "W")), number(mhz(choice.clock_mhz)), number(si(choice.memory_bytes, "B")),
      h("td", {}, choice.tied ? h("span", { class: "badge known", title: "its value lies within the interval of the best" }, "tied") : null, " ",
        choice.measured ? null : h("span", { class: "pill" }, "never measured"), " ",
        choice.uncovered.length ? h("span", { class: "pill", title: choice.uncovered.join("; ") }, "incomplete") : null)))));
  byId("best-more").textContent = shown.length < choices.length ? `Show all ${choices.length} GPUs` : "";
}
