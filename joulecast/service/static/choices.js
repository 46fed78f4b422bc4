// Choices side by side: a card for each GPU, how they compare, and the best of all.
import { byId, h, mhz, number, series, si } from "./format.js";
import { chooseByName, find } from "./gpus.js";

const QUANTITIES = [
  ["time", "time_s", "s"], ["power", "power_w", "W"], ["energy", "energy_j", "J"], ["energy × time", "edp_js", "Js"],
];
const SHOWN = 8;
const READ = 3; // Notes that are read without a click.
const UNMEASURED = "Never measured: no time or power of this GPU was among the data, so all figures follow from its data sheet and from other GPUs. Before much depends on them, measure one network on it";

/** Names of the GPUs of a question; the first, which single calls are about, is one that answered. */
export const answeredFirst = (question, gpus) => [...gpus, ...question.gpus.filter((gpu) => !gpus.includes(gpu))].map((gpu) => gpu.short_name);

/** A card for each GPU, in the colour of its place in the question. */
export function cards(box, gpus, predictions, tools) {
  const most = ends(QUANTITIES, predictions);
  box.replaceChildren(...gpus.map((gpu, i) => card(gpu, tools.place(gpu), predictions[i], most, tools)));
}

function card(gpu, place, prediction, most, tools) {
  const rows = tools.rowsOf(gpu);
  const held = prediction.held_clock_mhz;
  const notes = [...prediction.notes];
  if (!gpu.measured) notes.unshift(UNMEASURED);
  if (held < 0.995 * prediction.clock_mhz) notes.unshift(`its power cap of ${si(prediction.power_limit_w, "W")} holds it at ${Math.round(held)} MHz`);
  const { samples_per_s: rate, memory_bytes: memory } = prediction;
  return h("article", { class: "card", "--series": series(place) },
    h("h3", {}, gpu.short_name),
    h("span", { class: gpu.measured ? "badge known" : "badge" }, gpu.measured ? `measured: ${gpu.measured}` : "never measured"),
    clockChoice(gpu, rows, tools),
    h("dl", {}, gauges(QUANTITIES, prediction, most)),
    h("dl", { class: "facts" },
      rate ? fact("samples a second", Number(rate.toPrecision(3)).toLocaleString("en")) : null,
      memory ? fact("memory", `${si(memory, "B")} of ${si(gpu.memory_bytes, "B")}`) : null),
    remarks(notes));
}

/** A line of a card that has no bar: its name and its value. */
export const fact = (name, text) => h("div", {}, h("dt", {}, name), h("dd", {}, text));

/** What is to be known about a prediction; where it is much, all but the first lines are folded away. */
export function remarks(notes) {
  const told = notes.map((note) => h("p", {}, `${note[0].toUpperCase()}${note.slice(1)}.`));
  if (told.length <= READ) return h("div", { class: "notes" }, told);
  return h("div", { class: "notes" }, told.slice(0, READ - 1), h("details", {}, h("summary", {}, `What else it rests on (${told.length - READ + 1})`), told.slice(READ - 1)));
}

/** Where the bars of each quantity end: {name: the highest end of an interval}. */
export const ends = (quantities, predictions) =>
  Object.fromEntries(quantities.map(([, name]) => [name, Math.max(...predictions.map((p) => p.interval?.[name][1] ?? p[name]))]));

/** Quantities of a prediction as bars with their intervals. quantities: [[title, name, unit, or a function to a text]]; most: what `ends` gives. */
export function gauges(quantities, prediction, most) {
  const rows = quantities.map(([title, name, unit]) => quantity(title, prediction, name, unit, most[name]));
  return prediction.interval ? rows : [...rows, h("div", { class: "quantity" }, h("dt", {}, "intervals"), h("dd", { class: "range" }, "none known"))];
}

function quantity(title, prediction, name, unit, most) {
  const value = prediction[name];
  const text = (each) => (typeof unit === "function" ? unit(each) : si(each, unit));
  const range = prediction.interval?.[name];
  return h("div", { class: "quantity", "data-quantity": name },
    h("dt", {}, title), h("dd", { class: "value" }, text(value)),
    h("dd", { class: "gauge", "aria-hidden": "true" }, h("i", { "--to": value / most }),
      range ? h("b", { "--low": range[0] / most, "--high": range[1] / most }) : null),
    range ? h("dd", { class: "range", title: prediction.interval.basis }, `${100 * prediction.interval.level} %: ${text(range[0])} to ${text(range[1])}`) : null);
}

function clockChoice(gpu, rows, { optimum, clocks, choose, objective }) {
  const chosen = clocks[gpu.name] ?? "default";
  const option = (value, text) => h("option", { value, selected: String(value) === String(chosen) }, text);
  return h("select", { "aria-label": `Clock of ${gpu.short_name}`, onchange: (event) => choose(gpu, event.target.value) },
    option("default", `${mhz(rows[0].default_clock_mhz)}, default`),
    option("optimum", `${mhz(optimum(rows).clock_mhz)}, least ${objective}`),
    ...rows.map((row) => option(row.clock_mhz, mhz(row.clock_mhz))));
}

/** How the others compare with the first, in a sentence: "H100 SXM is 3 times faster than A30 and takes 9.6 % less energy." */
export function comparison(gpus, predictions, time, energy) {
  const [first, ...others] = predictions;
  return others.map((p, i) => {
    const pace = faster(p[time] / first[time], gpus[0].short_name);
    return `${gpus[i + 1].short_name} ${pace} and ${thriftier(p[energy] / first[energy])}.`;
  }).join(" ");
}

const figure = (value) => Number(value.toPrecision(2));
const percent = (ratio) => Number((100 * Math.abs(ratio - 1)).toPrecision(2));
const SAME = 0.005;

function faster(ratio, than) {
  if (Math.abs(ratio - 1) < SAME) return `is as fast as ${than}`;
  if (ratio < 0.5) return `is ${figure(1 / ratio)} times faster than ${than}`;
  if (ratio > 2) return `is ${figure(ratio)} times slower than ${than}`;
  return `takes ${percent(ratio)}\u00a0% ${ratio < 1 ? "less" : "more"} time than ${than}`;
}

function thriftier(ratio) {
  if (Math.abs(ratio - 1) < SAME) return "takes the same energy";
  return ratio > 2 ? `takes ${figure(ratio)} times the energy` : `takes ${percent(ratio)}\u00a0% ${ratio < 1 ? "less" : "more"} energy`;
}

/** The head of a table whose first columns are texts; what "rank" and "remarks" mean can be seen without a title. */
export function tableHead(titles, texts = 2) {
  return h("thead", {}, h("tr", {}, titles.map((title, i) => h("th", { scope: "col", class: i < texts ? null : "number" },
    ["rank", "remarks"].includes(title) ? h("span", { class: "unseen" }, title) : title))));
}

/** A row of a table of GPUs, which compares its GPU. mine: {full name of a GPU that is compared: place}; text: what names it. */
export function gpuRow(gpu, mine, rank, short, text, cells) {
  const compared = gpu in mine;
  return h("tr", { class: compared ? "mine" : null, "--series": compared ? series(mine[gpu]) : null, onclick: () => chooseByName(gpu) },
    number(`${rank}`),
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", "aria-label": `${short}: compare` }, text)),
    ...cells);
}

/** GPUs by the reason why they are not there, in a sentence. pairs: [[GPU, reason]]. */
export function leftOut(pairs) {
  const short = (name) => find(name)?.short_name ?? name;
  // A reason may name its GPU, mostly by the full name: without it, it is the same for many. "2x" stands in the heading already.
  const nameless = (name, why) => why.replaceAll(find(name)?.name ?? name, "this GPU").replaceAll(name, "this GPU");
  pairs = pairs.map(([name, why]) => [name.replace(/^\d+x /, ""), why]).map(([name, why]) => [name, nameless(name, why)]);
  const reasons = [...new Set(pairs.map(([, why]) => why))];
  const told = reasons.map((why) => `${[...new Set(pairs.filter((pair) => pair[1] === why).map(([name]) => short(name)))].join(", ")} (${why})`);
  return told.length ? `Left out: ${told.join("; ")}` : "";
}

/** The best clock of each GPU, best first. */
export function bestTable(choices, mine, question, all) {
  const shown = all ? choices : choices.filter((choice, i) => i < SHOWN || choice.gpu in mine);
  const unit = { energy: "J", time: "s", edp: "Js", ed2p: "Js2", carbon: "g" }[question.objective];
  const valued = !["energy", "time"].includes(question.objective);
  const cost = question.objective === "cost";
  const value = (choice) => (cost ? `${Number((1e6 * choice.value).toPrecision(3))}` : si(choice.value, unit));
  // Iterations of several batch sizes are compared by what a sample costs.
  const batched = "batch_sizes" in question.batches;
  const [energy, time] = batched ? ["energy_per_sample_j", "time_per_sample_s"] : ["energy_j", "time_s"];
  const each = batched ? " of a sample" : "";
  // What is asked for most stands first: a phone shows the first columns.
  const head = ["rank", "GPU", ...(valued ? [cost ? "cost of a million" : question.objectiveName] : []), `energy${each}`, `time${each}`, ...(batched ? ["batch"] : []), "power", "clock", "memory", "remarks"];
  byId("best").replaceChildren(
    h("caption", { class: "unseen" }, `The best clock of each GPU by least ${question.objectiveName}`),
    tableHead(head),
    h("tbody", {}, shown.map((choice) => gpuRow(choice.gpu, mine, choices.indexOf(choice) + 1, choice.alias, choice.alias, [
      valued ? number(value(choice)) : null, number(si(choice[energy], "J")),
      number(si(choice[time], "s")), batched ? number(`${choice.batch_size}`) : null, number(si(choice.power_w, "W")), number(mhz(choice.clock_mhz)), number(si(choice.memory_bytes, "B")),
      h("td", {}, choice.tied ? h("span", { class: "badge known", title: "its value lies within the interval of the best" }, "tied") : null, " ",
        choice.measured ? null : h("span", { class: "pill" }, "never measured"), " ",
        choice.uncovered.length ? h("span", { class: "pill", title: choice.uncovered.join("; ") }, "incomplete") : null)]))));
  byId("best-more").textContent = shown.length < choices.length ? `Show all ${choices.length}${batched ? "" : " GPUs"}` : "";
  byId("unmeasured").textContent = shown.some((choice) => !choice.measured)
    ? "Never measured: predicted from the data sheet and from other GPUs. Such figures may be further off, so a small lead of such a GPU says little; “tied” marks those whose lead lies within the interval of the best." : "";
}

/** A table that is searched for at the press of a button: ask() gives {rows, leftOut, head, cells(row)}. */
export function searched(id, ask, refuse) {
  byId(`${id}-find`).addEventListener("click", async ({ currentTarget: button }) => {
    const told = byId(`${id}-left-out`);
    button.disabled = true;
    told.textContent = "Searching";
    try {
      const { rows, leftOut: missing, head, cells } = await ask();
      byId(id).replaceChildren(
        h("caption", { class: "unseen" }, byId(`${id}-find`).previousElementSibling.textContent), tableHead(head),
        h("tbody", {}, rows.map((row, i) => h("tr", {}, number(`${i + 1}`), ...cells(row)))));
      told.textContent = leftOut(Object.entries(missing)) || "";
    } catch (error) {
      told.textContent = "";
      refuse(error);
    }
    button.disabled = false;
  });
}
/** Empty such a table, as its question has changed. */
export const unsearched = (id) => { byId(id).replaceChildren(); byId(`${id}-left-out`).textContent = ""; };
