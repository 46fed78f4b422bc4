// The GPUs to compare: adding them by name, by a row or by a point, and removing them.
import { ask, Refusal } from "./api.js";
import { byId, h, series } from "./format.js";

const MOST = 4;
export const chosen = [];
/** The clock chosen for a GPU, by its full name: "default", "optimum", or MHz. */
export const clocks = {};
let catalogue = [];
let changed = () => {};

/** Fill the list of names, and call `then` whenever the choice changes. */
export function setUpGpus(gpus, then) {
  catalogue = gpus;
  changed = then;
  byId("gpus").replaceChildren(...gpus.map((gpu) => h("option", { value: gpu.short_name }, gpu.measured ? "measured" : "never measured")));
}

export function listenToGpus() {
  byId("add-gpu").addEventListener("click", () => add());
  byId("gpu").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); add(); } });
  byId("gpu").addEventListener("input", (event) => {
    say("");
    // A name that was picked from the list needs no further key.
    if ((event.inputType === "insertReplacementText" || !event.inputType) && find(event.target.value)) add();
  });
}

const folded = (text) => text.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

/** A GPU of the catalogue by any of its names. */
export const find = (name) => catalogue.find((gpu) => [gpu.name, gpu.short_name, ...gpu.aliases].some((each) => folded(each) === folded(name)));

const say = (text) => { byId("gpu-help").textContent = text; };

/** Add what was typed. The service knows further names, and says what else a name could mean. */
async function add() {
  const name = byId("gpu").value.trim();
  if (!name) return say("Type the name of a GPU, such as A30.");
  let gpu = find(name);
  let note = "";
  if (!gpu) {
    try {
      const found = await ask(`gpus/${encodeURIComponent(name)}`);
      gpu = find(found.name);
      note = `${name} was taken for ${gpu.short_name}.`;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { title, allowed, hint } = error.problem;
      const suggested = /^did you mean (.+?)\?/.exec(hint ?? "")?.[1];
      return say(title === "unknown GPU" ? `No GPU is called ${name}${suggested ? `; did you mean ${suggested}?` : "."}` : `${sentence(title)}: ${allowed}.`);
    }
  }
  byId("gpu").value = "";
  return choose(gpu, note);
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

/** Add a GPU; where there are four, it takes the place of the last. */
export function choose(gpu, note = "") {
  if (chosen.includes(gpu)) return say(`${gpu.short_name} is among them already.`);
  const left = chosen.length === MOST ? chosen.pop() : null;
  chosen.push(gpu);
  say(left ? `${gpu.short_name} has taken the place of ${left.short_name}: four can be compared.` : note);
  showGpus();
  return changed();
}

function remove(gpu) {
  if (chosen.length === 1) return say("One GPU has to be left.");
  chosen.splice(chosen.indexOf(gpu), 1);
  say("");
  showGpus();
  changed();
  return byId("gpu").focus();
}

export function showGpus() {
  byId("chosen").replaceChildren(...chosen.map((gpu, i) => h("li", { "--series": series(i) },
    h("span", {}, gpu.short_name),
    h("button", { type: "button", "aria-label": `Remove ${gpu.short_name}`, onclick: () => remove(gpu) }, "×"))));
}

/** The GPUs and clocks of an address. */
export function recallGpus(kept) {
  chosen.splice(0, chosen.length, ...(kept.get("gpus") ?? "A30,H100 SXM").split(",").map(find).filter(Boolean).slice(0, MOST));
  if (!chosen.length) chosen.push(catalogue[0]);
  const wanted = (kept.get("clocks") ?? "").split(",");
  Object.keys(clocks).forEach((name) => delete clocks[name]);
  chosen.forEach((gpu, i) => { if (wanted[i] === "optimum" || Number(wanted[i]) > 0) clocks[gpu.name] = wanted[i]; });
}

export const rememberedGpus = () => ({
  gpus: chosen.map((gpu) => gpu.short_name).join(","),
  ...(chosen.some((gpu) => clocks[gpu.name]) ? { clocks: chosen.map((gpu) => clocks[gpu.name] ?? "default").join(",") } : {}),
});

/** How a row or a point is chosen: the same words for both. */
export const chooseByName = (name) => { const gpu = find(name.replace(/^\d+x /, "")); if (gpu) choose(gpu); };
