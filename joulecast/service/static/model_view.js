// What an iteration costs: cards, curves over the clock, all GPUs, modules and operations.
import { ask, download } from "./api.js";
import { showCalls, snippets } from "./calls.js";
import { clockChart } from "./charts.js";
import { bestTable, cards, comparison, leftOut } from "./choices.js";
import { costTable } from "./costs.js";
import { remember } from "./form.js";
import { byId, h, mhz, series, shapeText, si } from "./format.js";
import { frontChart, paretoFront } from "./front.js";
import { clocks, find } from "./gpus.js";
import { icicle } from "./modules.js";

const state = { question: null, sweep: null, best: [], predictions: [], where: 0, allCosts: false, allBest: false };

export const box = byId("answers");

/** Ask everything that a question needs. */
export async function answer(question, signal) {
  const { subject, options, gpus, objective, tariff, cap, limits, batches } = question;
  const job = { ...subject, ...options, ...cap };
  const choice = { ...job, objective, ...tariff };
  const [sweep, best] = await Promise.all([ask("sweep", choice, signal), ask("best", { ...choice, ...limits, ...batches }, signal)]);
  const known = new Set(sweep.rows.map((row) => row.gpu));
  const answered = gpus.filter((gpu) => known.has(gpu.name));
  const predictions = await Promise.all(answered.map((gpu) => predict(job, gpu, sweep, signal)));
  Object.assign(state, { question, job, choice, sweep, best, gpus: answered, predictions });
  state.where = Math.min(state.where, Math.max(0, answered.length - 1));
}

function predict(job, gpu, sweep, signal) {
  const wanted = clocks[gpu.name] ?? "default";
  const rows = sweep.rows.filter((row) => row.gpu === gpu.name);
  const clock = wanted === "default" ? null : wanted === "optimum" ? optimum(rows).clock_mhz : Number(wanted);
  return ask("predict", { ...job, gpu: gpu.name, tree: true, ...(clock ? { clock_mhz: clock } : {}) }, signal);
}

const optimum = (rows) => rows.reduce((a, b) => (b.value < a.value ? b : a));
const reason = (gpu) => state.sweep.left_out.find((out) => find(out.gpu) === gpu)?.reason ?? "is not known";
const rowsOf = (gpu) => state.sweep.rows.filter((row) => row.gpu === gpu.name);
const mine = () => Object.fromEntries(state.question.gpus.map((gpu, i) => [gpu.name, i]));

/** Show the last answer. `again` asks the same question once more, with another clock. */
export function show(again) {
  const { sweep, gpus, predictions, question, best } = state;
  byId("headline").textContent = [sweep.network, shapeText(sweep.input_shape)].filter(Boolean).join(", ")
    + `, ${sweep.mode}, per iteration`;
  cards(byId("cards"), gpus, predictions, {
    rowsOf, optimum, clocks, place: (gpu) => question.gpus.indexOf(gpu), objective: question.objectiveName,
    choose: (gpu, clock) => { clocks[gpu.name] = clock; remember(); again(state.question); },
  });
  byId("comparison").textContent = comparison(gpus, predictions, "time_s", "energy_j");
  charts();
  bestTable(best.choices, mine(), question, state.allBest);
  byId("left-out").textContent = leftOut(best.left_out.map((out) => [out.gpu, out.reason]));
  byId("where").replaceChildren(...gpus.map((gpu, i) => h("option", { value: i, selected: i === state.where }, `${gpu.short_name} at ${mhz(predictions[i].clock_mhz)}`)));
  where();
  const first = predictions[0];
  const clock = first && first.clock_mhz !== gpus[0].boost_clock_mhz ? first.clock_mhz : null;
  if (first) showCalls("calls", snippets(question, gpus.map((gpu) => gpu.short_name), clock));
  const missing = question.gpus.filter((gpu) => !gpus.includes(gpu)).map((gpu) => `${gpu.short_name}: ${reason(gpu)}`);
  byId("missing").textContent = missing.length ? `Left out: ${missing.join("; ")}` : "";
}

/** Draw the charts, in the colours that the page has now. */
export function charts() {
  const { gpus, sweep, question } = state;
  if (!sweep) return;
  const curves = gpus.map((gpu) => ({ name: gpu.short_name, place: question.gpus.indexOf(gpu), rows: rowsOf(gpu), optimum: optimum(rowsOf(gpu)) }));
  byId("curves-key").replaceChildren(
    ...curves.map((c) => h("li", { "--series": series(c.place) }, `${c.name}: least ${question.objectiveName} at ${mhz(c.optimum.clock_mhz)}`)),
    h("li", { class: "optimum" }, "optimum"), h("li", { class: "default" }, "default clock"));
  if (curves.length) {
    clockChart("energy-curve", curves, "energy_j", "J");
    clockChart("time-curve", curves, "time_s", "s");
  }
  const points = sweep.rows.map((row) => ({
    x: row.time_s, y: row.energy_j, gpu: row.gpu, name: row.alias, short: row.alias,
    told: `${row.alias} at ${mhz(row.clock_mhz)}: ${si(row.time_s, "s")}, ${si(row.power_w, "W")}, ${si(row.energy_j, "J")}`,
  }));
  frontChart("front", points, paretoFront(points), mine(), "time per iteration");
}

/** Modules and operations on the GPU that is chosen for them; drawn anew where the page has another width. */
export function where() {
  const prediction = state.predictions[state.where];
  if (!prediction) return;
  icicle(prediction.tree);
  costTable(prediction, state.allCosts);
}

/** Listen to what is inside the view. */
export function listen(again, refuse) {
  byId("where").addEventListener("change", (event) => { state.where = Number(event.target.value); where(); });
  byId("costs-more").addEventListener("click", () => { state.allCosts = true; where(); });
  byId("best-more").addEventListener("click", () => { state.allBest = true; show(again); });
  const file = (name) => `${state.sweep.network}-${name}.csv`.replaceAll(/[ /]/g, "-");
  byId("csv-operations").addEventListener("click", () => {
    const [gpu, prediction] = [state.gpus[state.where], state.predictions[state.where]];
    download("predict", { ...state.job, gpu: gpu.name, clock_mhz: prediction.clock_mhz }, file(gpu.short_name)).catch(refuse);
  });
  byId("csv-sweep").addEventListener("click", () => download("sweep", state.choice, file("gpus")).catch(refuse));
}
