// A language model under real traffic: tails of latencies, joules, and power, queue and latency over time.
import { ask, askEach } from "./api.js";
import { showCalls, trafficSnippets } from "./calls.js";
import { answeredFirst, comparison, ends, fact, gauges, remarks, searched, tableHead, unsearched } from "./choices.js";
import { boards, byId, h, mhz, number, series, si, written } from "./format.js";
import { find } from "./gpus.js";
import { axis, colour, place } from "./plots.js";

const LEVEL = 0.9;
const QUANTITIES = [
  ["first token, 99 % within", "ttft", "s"], ["time per token, 99 % within", "tpot", "s"], ["power", "power_w", "W"], ["energy per token", "energy_per_token_j", "J"],
];
const LATENCIES = [["first token", "ttft_s"], ["per token", "tpot_s"], ["between tokens", "itl_s"], ["whole request", "latency_s"]];
const CHARTS = [["power", "power_w", "W"], ["decoding", "decoding", ""], ["waiting", "waiting", ""], ["ttft", "ttft_s", "s"]];
const HINT = "Point at it, tap, or use the arrow keys to read it off.";
const state = { question: null, gpus: [], predictions: [], refused: [] };

export const box = byId("traffic");

/** Ask everything that a question needs. */
export async function answer(question, signal) {
  const { load, served, rate, gpus, cap } = question;
  const asked = { ...load, ...served, ...cap, requests: rate, level: LEVEL };
  const found = await askEach(gpus, (gpu) => ask("simulate_serving", { ...asked, gpu: boards(gpu.name, question.boards) }, signal));
  found.predictions = found.predictions.map(withTails);
  Object.assign(state, { question, ...found });
}

/** The tails at P99 beside the other quantities, with their intervals. */
function withTails(found) {
  const { intervals } = found;
  const known = { ttft: intervals["ttft_s p99"], tpot: intervals["tpot_s p99"], power_w: intervals.power_w, energy_per_token_j: intervals.energy_per_token_j };
  const interval = Object.values(known).every(Boolean) ? { ...known, level: LEVEL, basis: "the same requests with quicker and slower steps" } : null;
  return { ...found, ttft: found.ttft_s.p99, tpot: found.tpot_s.p99, interval };
}

/** Show the last answer. */
export function show() {
  const { question, gpus, predictions, refused } = state;
  const { load, rate, served } = question;
  byId("traffic-headline").textContent = `${load.model}, ${load.precision}, ${load.engine}: ${rate} requests a second for ${served.duration_s} s`;
  byId("traffic-missing").textContent = refused.length ? `Left out: ${refused.join("; ")}` : "";
  const most = ends(QUANTITIES, predictions);
  byId("traffic-cards").replaceChildren(...gpus.map((gpu, i) => card(gpu, question.gpus.indexOf(gpu), predictions[i], most)));
  byId("traffic-comparison").textContent = comparison(gpus, predictions, "tpot", "energy_per_token_j");
  byId("traffic-key").replaceChildren(...gpus.map((gpu) => h("li", { class: "line", "--series": series(question.gpus.indexOf(gpu)) }, written(gpu.short_name, question.boards))));
  charts();
  latencies();
  unsearched("enough");
  showCalls("traffic-calls", trafficSnippets(question, answeredFirst(question, gpus)));
}

function card(gpu, at, found, most) {
  return h("article", { class: "card", "--series": series(at) },
    h("h3", {}, written(gpu.short_name, found.gpus)),
    h("dl", {}, gauges(QUANTITIES, found, most)),
    h("dl", { class: "facts" },
      fact("requests a second", Number(found.requests_per_s.toPrecision(3)).toLocaleString("en")),
      fact("tokens a second", Math.round(found.tokens_per_s).toLocaleString("en")),
      fact("without work", `${(100 * found.idle_share).toFixed(1)} %`),
      fact("put back for memory", found.preemptions.toLocaleString("en"))),
    remarks(found.notes));
}

/** Draw the charts, in the colours that the page has now. */
export function charts() {
  const { question, gpus, predictions } = state;
  if (!predictions.length) return;
  const colours = gpus.map((gpu) => colour(`--s${question.gpus.indexOf(gpu)}`));
  for (const [id, quantity, unit] of CHARTS) {
    const readout = byId(`traffic-${id}-readout`);
    const text = (value) => (unit ? si(value, unit) : `${Number((value ?? 0).toPrecision(3))}`);
    const told = predictions.map((found, i) => `${gpus[i].short_name}: at most ${text(Math.max(...found.timeline[quantity]))}`).join("; ");
    readout.textContent = HINT;
    place(`traffic-${id}`, {
      cursor: { points: { show: false }, drag: { x: false, y: false }, y: false },
      scales: { x: { time: false }, y: { range: (plot, low, high) => [0, (high || 1) * 1.08] } },
      axes: [axis((plot, ticks) => ticks.map((tick) => `${tick}`), { label: "s", labelSize: 18, labelFont: "12px system-ui", size: 34 }),
        axis((plot, ticks) => ticks.map(text), { size: 62 })],
      series: [{}, ...colours.map((stroke) => ({ stroke, width: 1.8, spanGaps: true, points: { show: false } }))],
      hooks: { setCursor: [(plot) => { readout.textContent = plot.cursor.left < 0 ? HINT : readOff(plot, text); }] },
    }, uPlot.join(predictions.map(({ timeline }) => [timeline.time_s, timeline[quantity]])), told);
  }
}

function readOff(plot, text) {
  const at = plot.posToIdx(plot.cursor.left);
  const near = (values) => [0, -1, 1, -2, 2].map((way) => values[at + way]).find((value) => value !== null && value !== undefined);
  return `At ${si(plot.data[0][at], "s")}: ${state.gpus.map((gpu, i) => `${gpu.short_name} ${text(near(plot.data[i + 1]))}`).join(" · ")}`;
}

function latencies() {
  const { gpus, predictions } = state;
  const quantiles = ["p50", "p90", "p99"];
  byId("latencies").replaceChildren(
    h("caption", { class: "unseen" }, "Latencies that half, 90 % and 99 % of the requests have at most"),
    tableHead(["latency", ...gpus.flatMap((gpu) => quantiles.map((at) => `${gpu.short_name}: ${at.toUpperCase()}`))], 1),
    h("tbody", {}, LATENCIES.map(([title, name]) => h("tr", {}, h("th", { scope: "row" }, title),
      predictions.flatMap((found) => quantiles.map((at) => number(si(found[name][at], "s"))))))));
}

/** GPUs, clocks and their number that hold the limits at this rate. */
async function enough() {
  const { load, rate, limits, share, batch, gpus, cap, objective, tariff } = state.question;
  const { choices, left_out: leftOut } = await ask("best_generation", {
    ...Object.fromEntries(Object.entries(load).filter(([name]) => name !== "precision")), precisions: [load.precision], ...limits, ...cap, ...tariff,
    objective, rate_per_s: rate, counts: [share], batches: [batch], gpus: gpus.map((gpu) => gpu.name),
  });
  const cells = (row) => [
    h("th", { scope: "row" }, `${row.gpus} × ${find(row.gpu)?.short_name ?? row.gpu}`), number(mhz(row.clock_mhz)), number(si(row.energy_per_token_j, "J")),
    number(si(row.ttft_p99_s, "s")), number(si(row.tpot_p99_s, "s")), number(`${Number(row.highest_rate_per_s.toPrecision(3))}`), number(si(row.power_w, "W"))];
  return { rows: choices, leftOut, cells, head: ["rank", "GPUs", "clock", "energy per token", "first token, P99", "per token, P99", "requests/s at most", "power"] };
}

/** Listen to what is inside the view. */
export function listen(again, refuse) {
  searched("enough", enough, refuse);
}
