// What text costs that a language model generates: cards for each GPU, and all ways to serve it with their Pareto front.
import { ask, askEach, download } from "./api.js";
import { servingSnippets, showCalls } from "./calls.js";
import { answeredFirst, comparison, ends, fact, gauges, gpuRow, leftOut, remarks, tableHead } from "./choices.js";
import { boards, byId, h, mhz, number, series, si, written } from "./format.js";
import { frontChart } from "./front.js";
import { find } from "./gpus.js";

const QUANTITIES = [
  ["time per token", "time_per_output_token_s", "s"], ["first token after", "time_to_first_token_s", "s"],
  ["power", "power_w", "W"], ["energy per token", "energy_per_token_j", "J"],
];
const SHOWN = 10;
const state = { question: null, gpus: [], predictions: [], refused: [], ways: null, all: false };

export const box = byId("generation");

const tokens = (lengths) => (Array.isArray(lengths) ? lengths.join(" ± ") : lengths);

/** Ask everything that a question needs. */
export async function answer(question, signal) {
  const { load, batch, precision, share, cap, limits, objective, tariff, gpus } = question;
  const asked = { ...load, precision, ...cap };
  const choice = { ...load, precisions: [precision], counts: [share], objective, ...tariff, ...cap, ...limits };
  const [ways, found] = await Promise.all([
    ask("best_generation", choice, signal),
    askEach(gpus, (gpu) => ask("predict_generation", { ...asked, gpu: boards(gpu.name, share), batch, tensor_parallel: share }, signal), true),
  ]);
  Object.assign(state, { question, choice, ways, ...found });
}

/** Show the last answer. */
export function show() {
  const { question, predictions, gpus, ways } = state;
  const { load, batch, precision } = question;
  byId("generation-headline").textContent = `${load.model}, ${precision}, ${load.engine}: ${tokens(load.prompt_tokens)} prompt and ${tokens(load.output_tokens)} output tokens, ${batch} requests at a time`;
  byId("generation-missing").textContent = state.refused.length ? `Left out: ${state.refused.join("; ")}` : "";
  const most = ends(QUANTITIES, predictions);
  byId("generation-cards").replaceChildren(...gpus.map((gpu, i) => card(gpu, question.gpus.indexOf(gpu), predictions[i], most)));
  byId("generation-comparison").textContent = comparison(gpus, predictions, "time_per_output_token_s", "energy_per_token_j");
  charts();
  table();
  byId("ways-left-out").textContent = leftOut(Object.entries(ways.left_out));
  showCalls("generation-calls", servingSnippets(question, answeredFirst(question, gpus)));
}

function card(gpu, at, prediction, most) {
  const { memory, gpus: count } = prediction;
  const held = memory.weights_bytes + memory.cache_bytes + memory.activations_bytes;
  return h("article", { class: "card", "--series": series(at) },
    h("h3", {}, written(gpu.short_name, count)),
    h("dl", {}, gauges(QUANTITIES, prediction, most)),
    h("dl", { class: "facts" },
      fact("tokens a second", Math.round(prediction.tokens_per_s).toLocaleString("en")),
      fact("memory of a GPU", `${si(held, "B")} of ${si(memory.usable_bytes, "B")}`),
      fact("energy a request", si(prediction.energy_per_request_j, "J")),
      fact("requests that fit", prediction.largest_batch.toLocaleString("en"))),
    remarks(prediction.notes));
}

const shortOf = (row) => find(row.gpu)?.short_name ?? row.gpu;
const writtenRow = (row) => written(shortOf(row), row.gpus) + (row.gpus > 1 ? `, ${row.layout}` : "");
const mine = () => Object.fromEntries(state.question.gpus.map((gpu, i) => [gpu.name, i]));

/** Draw the chart, in the colours that the page has now. */
export function charts() {
  if (!state.ways) return;
  const point = (row) => {
    const short = shortOf(row);
    const name = writtenRow(row);
    return {
      x: row.time_per_output_token_s, y: row.energy_per_token_j, gpu: row.gpu, name, short, line: row.batch,
      told: `${name}, batch ${row.batch} at ${mhz(row.clock_mhz)}: ${si(row.time_per_output_token_s, "s")} and ${si(row.energy_per_token_j, "J")} per token, ${si(row.power_w, "W")}`,
    };
  };
  frontChart("serving", state.ways.rows.map(point), state.ways.pareto.map(point), mine(), "time per token");
}

function table() {
  const { choices } = state.ways;
  const own = mine();
  const { objective, objectiveName } = state.question;
  const shown = state.all ? choices : choices.filter((choice, i) => i < SHOWN || choice.gpu in own);
  const value = { cost: (row) => `${Number(row.value.toPrecision(3))}`, carbon: (row) => si(row.value, "g") }[objective];
  const head = ["rank", "GPU", ...(value ? [`${objectiveName} of a million`] : []), "energy per token", "time per token", "first token", "tokens/s", "batch", "power", "clock"];
  byId("ways").replaceChildren(
    h("caption", { class: "unseen" }, `The best way of each GPU by least ${objectiveName}`),
    tableHead(head),
    h("tbody", {}, shown.map((row) => gpuRow(row.gpu, own, choices.indexOf(row) + 1, shortOf(row), writtenRow(row), [
      value ? number(value(row)) : null, number(si(row.energy_per_token_j, "J")), number(si(row.time_per_output_token_s, "s")),
      number(si(row.time_to_first_token_s, "s")), number(Math.round(row.tokens_per_s).toLocaleString("en")), number(`${row.batch}`),
      number(si(row.power_w, "W")), number(mhz(row.clock_mhz))]))));
  byId("ways-more").textContent = shown.length < choices.length ? `Show all ${choices.length} GPUs` : "";
}

/** Listen to what is inside the view. */
export function listen(again, refuse) {
  byId("ways-more").addEventListener("click", () => { state.all = true; table(); });
  byId("csv-ways").addEventListener("click", () => download("best_generation", state.choice, `${state.choice.model}-ways.csv`).catch(refuse));
}
