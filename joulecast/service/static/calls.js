// The question of the page as a call of the library and of the command line.
import { byId, h } from "./format.js";

function tuple(shape) {
  if (!shape) return "None";
  if (!Array.isArray(shape)) return `{${Object.entries(shape).map(([name, item]) => `"${name}": ${tuple(item)}`).join(", ")}}`;
  if (Array.isArray(shape[0])) return `[${shape.map(tuple).join(", ")}]`;
  return `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
}

function words(shape) {
  if (!shape) return [];
  if (!Array.isArray(shape)) return Object.entries(shape).map(([name, item]) => `${name}=${item.join(",")}`);
  return Array.isArray(shape[0]) ? shape.map((item) => item.join(",")) : [shape.join(",")];
}

const quoted = (text) => (/^[\w./=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const text = (value) => JSON.stringify(value);

/** Both calls: the prediction of the first GPU, and the choice among all. */
export function snippets(question, gpus, clock, objective) {
  const { subject, options, tariff } = question;
  const listed = !subject.model;
  const model = listed ? 'joulecast.Network.load("network.json")' : text(subject.model);
  const shape = listed ? "None" : tuple(subject.input_shape);
  const cached = subject.cache_length ? { cache_length: subject.cache_length } : {};
  const named = Object.entries({ ...options, ...cached }).filter(([name, value]) => value !== null && value !== USUAL[name]);
  const keywords = named.map(([name, value]) => `, ${name}=${text(value)}`).join("");
  const prices = Object.entries(tariff).map(([name, value]) => `, ${name}=${text(value)}`).join("");
  const flags = named.map(([name, value]) => (name === "mode" ? "--training" : `--${name.replace("_", "-")} ${value}`));
  const start = ["joulecast", "MODE", listed ? "network.json" : quoted(subject.model), ...(listed ? [] : words(subject.input_shape).map(quoted))];
  const cli = (mode, ...rest) => [...start.map((w) => (w === "MODE" ? mode : w)), ...rest, ...flags].join(" ");
  const priced = Object.entries(tariff).flatMap(([name, value]) => [`--${name.replaceAll("_", "-")}`, quoted(String(value))]);
  return {
    Python: [
      "import joulecast", "",
      `prediction = joulecast.predict(${model}, ${shape}, ${text(gpus[0])}${clock ? `, ${clock}` : ""}${keywords})`,
      `choices = joulecast.best(${model}, ${shape}, gpus=${text(gpus).replaceAll(",", ", ")}, objective=${text(objective)}${keywords}${prices})`,
    ].join("\n"),
    "Command line": [
      cli("predict", "--gpu", quoted(gpus[0]), ...(clock ? ["--clock", clock] : [])),
      cli("best", "--gpu", quoted(gpus.join(",")), "--objective", objective, ...priced),
    ].join("\n"),
  };
}
const USUAL = { mode: "inference", precision: "default", execution: "eager", host: "usual" };

export function showCalls(found) {
  byId("calls").replaceChildren(...Object.entries(found).map(([title, code]) => h("div", { class: "call" },
    h("h3", {}, title),
    h("button", { type: "button", "aria-label": `Copy ${title}`, onclick: (event) => copy(event.currentTarget, code) }, "Copy"),
    h("pre", { tabindex: 0, role: "region", "aria-label": title }, h("code", {}, code)))));
}

async function copy(button, code) {
  try {
    await navigator.clipboard.writeText(code);
    button.textContent = "Copied";
  } catch {
    // No clipboard without TLS or permission: what is selected can be copied by hand.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
