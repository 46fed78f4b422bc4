// What a whole training run costs: a card for each GPU, and what each part of a run takes.
import { ask, askEach } from "./api.js";
import { runSnippets, showCalls } from "./calls.js";
import { comparison, ends, fact, gauges, remarks, searched, tableHead, unsearched } from "./choices.js";
import { byId, duration, h, mhz, number, series, si, written } from "./format.js";
import { find } from "./gpus.js";

const kwh = (joules) => `${Number((joules / 3.6e6).toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 })} kWh`;
const HOURS = [["time", "time_s", duration], ["energy of the boards", "energy_j", kwh], ["energy at the plug", "wall_energy_j", kwh]];
const state = { question: null, gpus: [], predictions: [], refused: [] };

export const box = byId("runs");

/** Ask everything that a question needs. */
export async function answer(question, signal) {
  const { gpus, job, together, options, tariff, cap } = question;
  const asked = { ...job, ...options, ...tariff, ...cap };
  const found = await askEach(gpus, (gpu) => ask("predict_run", { ...asked, gpu: `${together}x ${gpu.name}` }, signal));
  Object.assign(state, { question, ...found });
}

/** Show the last answer. */
export function show() {
  const { question, gpus, predictions, refused } = state;
  const [{ model, precision, steps, samples, epochs }] = predictions;
  byId("runs-headline").textContent = `${model}, ${precision}: ${samples.toLocaleString("en")} samples, ${epochs} epochs, ${steps.toLocaleString("en")} steps`;
  byId("runs-missing").textContent = refused.length ? `Left out: ${refused.join("; ")}` : "";
  const most = ends(HOURS, predictions);
  byId("runs-cards").replaceChildren(...gpus.map((gpu, i) => card(gpu, question.gpus.indexOf(gpu), predictions[i], most)));
  byId("runs-comparison").textContent = comparison(gpus, predictions, "time_s", "wall_energy_j");
  parts();
  unsearched("where-run");
  showCalls("runs-calls", runSnippets(question, gpus.map((gpu) => gpu.short_name)));
}

function card(gpu, at, run, most) {
  return h("article", { class: "card", "--series": series(at) },
    h("h3", {}, written(gpu.short_name, run.gpus)),
    h("dl", {}, gauges(HOURS, run, most)),
    h("dl", { class: "facts" },
      run.cost === null ? null : fact("cost", run.cost.toLocaleString("en", { maximumFractionDigits: 2 })),
      run.carbon_kg === null ? null : fact("carbon", si(1000 * run.carbon_kg, "g")),
      fact("samples a second", Number(run.samples_per_s.toPrecision(3)).toLocaleString("en")),
      fact("memory of a GPU", `${si(run.memory_bytes, "B")} of ${si(gpu.memory_bytes, "B")}`)),
    remarks(run.notes));
}

/** Seconds and joules of forward, backward, optimizer, communication and what else a run has. */
function parts() {
  const { gpus, predictions } = state;
  const names = [...new Set(predictions.flatMap((run) => run.parts.map((part) => part.name)))];
  const cells = (run, name) => {
    const part = run.parts.find((each) => each.name === name);
    return [number(part ? duration(part.time_s) : "-"), number(si(part?.energy_j, "J"))];
  };
  byId("phases").replaceChildren(
    h("caption", { class: "unseen" }, "Time and energy of the parts of the run"),
    tableHead(["part", ...gpus.flatMap((gpu) => [`${gpu.short_name}: time`, "energy"])], 1),
    h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, name), predictions.flatMap((run) => cells(run, name))))));
}

/** Nothing here is drawn: colours follow those of the page by themselves. */
export function charts() {}

/** Clocks, micro-batches and divisions on these GPUs, best first. */
async function best() {
  const { gpus, job, together, options, tariff, cap, objective } = state.question;
  const { sharding, ...rest } = options;
  const counts = [...new Set([1, together])];
  const found = await ask("best_run", { ...job, ...rest, ...tariff, ...cap, objective, counts, gpus: gpus.map((gpu) => gpu.name) });
  const cells = (run) => {
    const batch = run.input_shape[0] / (run.replicas * run.accumulation);
    return [h("th", { scope: "row" }, `${run.gpus} × ${find(run.gpu)?.short_name ?? run.gpu}`), number(mhz(run.clock_mhz)), number(`${batch}`),
      h("td", {}, run.sharding), h("td", {}, run.recompute), number(duration(run.time_s)), number(kwh(run.wall_energy_j))];
  };
  return { rows: found.choices, leftOut: found.left_out, cells, head: ["rank", "GPUs", "clock", "micro-batch", "sharding", "computed again", "time", "at the plug"] };
}

/** Listen to what is inside the view. */
export function listen(again, refuse) {
  searched("where-run", best, refuse);
}
