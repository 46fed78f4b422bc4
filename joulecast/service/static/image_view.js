// What images and videos cost that a diffusion pipeline makes: a card for each GPU, and what each part of the pipeline takes.
import { ask, askEach } from "./api.js";
import { imageSnippets, showCalls } from "./calls.js";
import { comparison, ends, fact, gauges, remarks, tableHead } from "./choices.js";
import { byId, h, number, series, si } from "./format.js";

const state = { question: null, gpus: [], predictions: [], refused: [] };

export const box = byId("images");

/** Ask everything that a question needs. */
export async function answer(question, signal) {
  const { gpus, pipeline, options, cap } = question;
  const found = await askEach(gpus, (gpu) => ask("predict_image", { model: pipeline, gpu: gpu.name, ...options, ...cap }, signal));
  Object.assign(state, { question, ...found });
}

/** Show the last answer. */
export function show() {
  const { question, gpus, predictions, refused } = state;
  const [{ model, precision, batch, height, width, steps, frames }] = predictions;
  const kind = frames ? "video" : "image";
  const made = `${batch > 1 ? `${batch} ${kind}s at once` : `one ${kind}`} of ${frames ? `${frames} frames of ` : ""}${width} × ${height}`;
  byId("images-headline").textContent = `${model}, ${precision}: ${made}, ${steps} steps`;
  byId("images-missing").textContent = refused.length ? `Left out: ${refused.join("; ")}` : "";
  const quantities = [[`time per ${kind}`, "time_per_image_s", "s"], ["power", "power_w", "W"], [`energy per ${kind}`, "energy_per_image_j", "J"]];
  const most = ends(quantities, predictions);
  byId("images-cards").replaceChildren(...gpus.map((gpu, i) => card(gpu, question.gpus.indexOf(gpu), kind, gauges(quantities, predictions[i], most), predictions[i])));
  byId("images-comparison").textContent = comparison(gpus, predictions, "time_per_image_s", "energy_per_image_j");
  parts(kind);
  showCalls("images-calls", imageSnippets(question, gpus.map((gpu) => gpu.short_name)));
}

function card(gpu, at, kind, bars, prediction) {
  return h("article", { class: "card", "--series": series(at) },
    h("h3", {}, gpu.short_name),
    h("dl", {}, bars),
    h("dl", { class: "facts" },
      fact(`${kind}s an hour`, Number((3600 / prediction.time_per_image_s).toPrecision(3)).toLocaleString("en")),
      fact("weights", `${si(prediction.weights_bytes, "B")} of ${si(gpu.memory_bytes, "B")}`)),
    remarks(prediction.notes));
}

/** Seconds and joules of the parts of each pipeline: text encoders, the denoiser in all its steps, and the decoder. */
function parts(kind) {
  const { gpus, predictions } = state;
  const { steps, batch } = predictions[0];
  const sum = (values) => values.reduce((one, other) => one + other, 0);
  const whole = (p, name) => (name === "energy_j" ? p.gpus : 1); // Each GPU needs its own joules in the same time.
  const rows = [
    ["text encoders", (p, name) => whole(p, name) * sum(p.text.map((each) => each[name]))],
    [`denoiser, ${steps} steps`, (p, name) => whole(p, name) * p.denoise_calls * p.denoise[name]],
    ["decoder", (p, name) => whole(p, name) * p.decode_calls * p.decode[name]],
    [batch > 1 ? `all ${batch} ${kind}s` : `the ${kind}`, (p, name) => ({ time_s: p.time_per_batch_s, energy_j: p.batch * p.energy_per_image_j })[name]],
  ];
  byId("parts").replaceChildren(
    h("caption", { class: "unseen" }, "Time and energy of the parts of the pipeline"),
    tableHead(["part", ...gpus.flatMap((gpu) => [`${gpu.short_name}: time`, "energy"])], 1),
    h("tbody", {}, rows.map(([title, value]) => h("tr", {}, h("th", { scope: "row" }, title),
      predictions.flatMap((p) => [number(si(value(p, "time_s"), "s")), number(si(value(p, "energy_j"), "J"))])))));
}

/** Nothing here is drawn: colours follow those of the page by themselves. */
export function charts() {}

/** Nothing inside the view asks anything. */
export function listen() {}
