// The page: reads the question off the form, asks the service, and shows the answers.
import { ask, download, Refusal } from "./api.js";
import { showCalls, snippets } from "./calls.js";
import { clockChart, frontChart } from "./charts.js";
import { bestTable, cards, comparison } from "./choices.js";
import { byId, h, mhz, series, shapeText } from "./format.js";
import { costTable } from "./costs.js";
import { clocks, remember, setUp } from "./form.js";
import { icicle } from "./modules.js";

const state = { question: null, sweep: null, best: [], predictions: [], where: 0, allCosts: false, allBest: false };
let running = null;

/** Ask everything that a question needs, and show it. */
async function answer(question) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  byId("results").setAttribute("aria-busy", "true");
  say("Predicting");
  try {
    const { subject, options, gpus, objective, tariff } = question;
    const job = { ...subject, ...options };
    const [sweep, best] = await Promise.all([
      ask("sweep", { ...job, objective, ...tariff }, signal),
      ask("best", { ...job, objective, ...tariff }, signal),
    ]);
    const known = new Set(sweep.rows.map((row) => row.gpu));
    const answered = gpus.filter((gpu) => known.has(gpu.name));
    const predictions = await Promise.all(answered.map((gpu) => predict(job, gpu, sweep, signal)));
    Object.assign(state, { question, job, sweep, best: best.choices, gpus: answered, predictions });
    state.where = Math.min(state.where, Math.max(0, answered.length - 1));
    byId("problem").hidden = true;
    byId("answers").hidden = false;
    byId("answers").classList.remove("stale");
    show();
    const missing = gpus.filter((gpu) => !known.has(gpu.name)).map((gpu) => `${gpu.short_name} ${reason(gpu.name)}`);
    byId("missing").textContent = missing.length ? `Left out: ${missing.join("; ")}` : "";
    say("");
  } catch (error) {
    if (error.name === "AbortError") return;
    refuse(error);
  }
  if (running?.signal === signal) byId("results").setAttribute("aria-busy", "false");
}

function predict(job, gpu, sweep, signal) {
  const wanted = clocks[gpu.name] ?? "default";
  const rows = sweep.rows.filter((row) => row.gpu === gpu.name);
  const clock = wanted === "default" ? null : wanted === "optimum" ? optimum(rows).clock_mhz : Number(wanted);
  return ask("predict", { ...job, gpu: gpu.name, tree: true, ...(clock ? { clock_mhz: clock } : {}) }, signal);
}

export const optimum = (rows) => rows.reduce((a, b) => (b.value < a.value ? b : a));
const reason = (gpu) => state.sweep.left_out.find((out) => out.gpu === gpu)?.reason ?? "is not known";
const rowsOf = (gpu) => state.sweep.rows.filter((row) => row.gpu === gpu.name);

function show() {
  const { sweep, gpus, predictions, question } = state;
  byId("headline").textContent = [sweep.network, shapeText(sweep.input_shape)].filter(Boolean).join(", ")
    + `, ${sweep.mode}, per iteration`;
  cards(byId("cards"), gpus, predictions, {
    rowsOf, optimum, clocks, objective: question.objectiveName,
    choose: (gpu, clock) => { clocks[gpu.name] = clock; remember(); answer(state.question); },
  });
  byId("comparison").textContent = comparison(gpus, predictions);
  charts();
  bestTable(state.best, Object.fromEntries(gpus.map((gpu, i) => [gpu.name, i])), question, state.allBest);
  const out = sweep.left_out;
  byId("left-out").textContent = out.length
    ? `Left out: ${[...new Set(out.map((each) => each.reason))].map((why) => `${out.filter((e) => e.reason === why).map((e) => shortName(e.gpu)).join(", ")} (${why})`).join("; ")}`
    : "";
  byId("where").replaceChildren(...gpus.map((gpu, i) => h("option", { value: i, selected: i === state.where }, `${gpu.short_name} at ${mhz(predictions[i].clock_mhz)}`)));
  where();
  const first = predictions[0];
  const clock = first && first.clock_mhz !== gpus[0].boost_clock_mhz ? first.clock_mhz : null;
  if (first) showCalls(snippets(question, gpus.map((gpu) => gpu.short_name), clock, question.objective));
}

const shortName = (name) => state.catalogue.find((gpu) => gpu.name === name)?.short_name ?? name;

function charts() {
  const { gpus, predictions, sweep } = state;
  if (!sweep) return;
  const curves = gpus.map((gpu, i) => ({
    name: gpu.short_name, place: i, rows: rowsOf(gpu), optimum: optimum(rowsOf(gpu)), chosen: predictions[i].clock_mhz,
  }));
  byId("curves-key").replaceChildren(
    ...curves.map((c) => h("li", { "--series": series(c.place) }, `${c.name}: least ${state.question.objectiveName} at ${mhz(c.optimum.clock_mhz)}`)),
    h("li", { class: "optimum" }, "optimum"), h("li", { class: "default" }, "default clock"));
  if (curves.length) {
    clockChart("energy-curve", curves, "energy_j", "J");
    clockChart("time-curve", curves, "time_s", "s");
  }
  const front = [];
  for (const row of [...sweep.rows].sort((a, b) => a.time_s - b.time_s || a.energy_j - b.energy_j)) {
    if (!front.length || row.energy_j < front[front.length - 1].energy_j) front.push(row);
  }
  frontChart("front", sweep.rows, front, Object.fromEntries(gpus.map((gpu, i) => [gpu.name, i])));
}

function where() {
  const prediction = state.predictions[state.where];
  if (!prediction) return;
  icicle(prediction.tree);
  costTable(prediction, state.allCosts);
}

function say(text) {
  byId("status").textContent = text;
}

function refuse(error) {
  // What is still being computed answers the question before.
  running?.abort();
  byId("results").setAttribute("aria-busy", "false");
  const problem = error instanceof Refusal ? error.problem : { title: "the page has a fault", hint: String(error) };
  if (!(error instanceof Refusal)) console.error(error);
  const parts = [["given", problem.given], ["allowed", problem.allowed], ["next", problem.status === 401 ? "enter it in the form" : problem.hint]].filter(([, value]) => value);
  byId("problem").replaceChildren(h("strong", {}, problem.title),
    h("dl", {}, parts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    ...(byId("answers").hidden ? [] : [h("p", {}, "Below is still the answer to the question before.")]));
  byId("answers").classList.add("stale");
  byId("problem").hidden = false;
  byId("token-field").hidden = problem.status !== 401;
  if (problem.status === 401) byId("token").focus();
  say("");
}

byId("where").addEventListener("change", (event) => { state.where = Number(event.target.value); where(); });
byId("costs-more").addEventListener("click", () => { state.allCosts = true; where(); });
byId("best-more").addEventListener("click", () => { state.allBest = true; show(); });
byId("csv-operations").addEventListener("click", () => save("predict"));
byId("csv-sweep").addEventListener("click", () => save("sweep"));

function save(what) {
  const { question, job, predictions, where: place, gpus } = state;
  const asked = what === "sweep"
    ? { ...job, objective: question.objective, ...question.tariff }
    : { ...job, gpu: gpus[place].name, clock_mhz: predictions[place].clock_mhz };
  download(what, asked, `${state.sweep.network}-${what === "sweep" ? "gpus" : gpus[place].short_name}.csv`.replaceAll(/[ /]/g, "-")).catch(refuse);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts);
let wide = innerWidth;
addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; where(); } });

setUp(answer, refuse).then((catalogue) => { state.catalogue = catalogue; }).catch(refuse);
