// The form: what can be asked, and what was asked.
import { read as readAddress, written } from "./address.js";
import { ask, Refusal, setToken } from "./api.js";
import { calibration, listenToCalibrations } from "./calibration.js";
import { given, grid, lengths, milliseconds, positive, prices, typed, whole, wholeOrNone, wholes } from "./fields.js";
import { byId, h, parseJson, parseShape, shapeText } from "./format.js";
import { chosen, listenToGpus, recallGpus, rememberedGpus, setUpGpus, showGpus } from "./gpus.js";
import { isReading, listenToFiles } from "./upload.js";

const PRICED = { cost: ["price_per_hour", "Price of a GPU hour", "1.00"], carbon: ["carbon", "Grid: country, or g CO2 per kWh", "DE"] };
const EXAMPLE = JSON.stringify([{ kind: "linear", input_shapes: [[32, 1024]], attributes: { out_features: 4096 }, count: 3 }, { kind: "gelu", input_shapes: [[32, 4096]], count: 3 }], null, 1);
const RUNS = { eager: "eager", graph: "as a CUDA graph", compiled: "torch.compile" };
/** Objectives that only iterations have. */
const OF_ITERATIONS = ["edp", "ed2p"];
/** Fields that ask nothing by themselves. */
const QUIET = new Set(["gpu", "token", "file", "file-shape", "calibration"]);
const form = byId("question");
let models = [];
let listed = false;
let address = "";
let ready = () => {};

/** Fill the form, and call `answer` with the question now and whenever it changes. */
export async function setUp(answer, refuse) {
  ready = () => {
    if (subject() === "operations" && isReading()) return; // The answer follows when the file is read.
    try {
      const question = read();
      remember();
      answer(question);
    } catch (error) {
      refuse(error);
    }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); return byId("token").value ? enter(refuse) : ready(); });
  form.addEventListener("change", ({ target }) => { if (!QUIET.has(target.id)) changed(target); });
  listenToGpus();
  listenToFiles(ready, refuse);
  listenToCalibrations(() => ready(), refuse);
  // An address that is pasted into an open page asks its own question.
  addEventListener("hashchange", async () => { if (listed && location.hash !== address) { await recall(); ready(); } });
  byId("operations").value = EXAMPLE;
  return fill();
}

async function enter(refuse) {
  setToken(byId("token").value);
  byId("token").value = "";
  byId("token-field").hidden = true;
  await fill().catch(refuse);
}

async function fill() {
  const [found, catalogue, runs, version] = await Promise.all([ask("models"), ask("gpus"), ask("execution"), ask("version")]);
  models = found.models;
  const options = (id, rows) => byId(id).replaceChildren(...rows.map(([value, text]) => h("option", { value }, text ?? value)));
  options("models", models.map(({ name }) => [name]));
  options("pipelines", found.pipelines.map((name) => [name]));
  options("llms", found.language_models.map((name) => [name]));
  options("execution", runs.executions.map((name) => [name, RUNS[name]]));
  options("host", runs.hosts.map(({ name, factor }) => [name, factor === 1 ? name : `${name} (${factor} ×)`]));
  options("engine", runs.engines.map((name) => [name]));
  options("grids", runs.grids.map(({ code, name, carbon_g_per_kwh: grams }) => [code, `${name}, ${grams} g`]));
  byId("version").textContent = `joulecast ${version.joulecast}`;
  setUpGpus(catalogue.gpus, () => ready());
  listed = true;
  await recall();
  ready();
}

const subject = () => form.elements.subject.value;

function show() {
  showGpus();
  const about = subject();
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(about);
  for (const option of byId("objective").options) option.hidden = option.disabled = ["generation", "traffic", "runs"].includes(about) && OF_ITERATIONS.includes(option.value);
  if (byId("objective").selectedOptions[0]?.disabled) byId("objective").value = "energy";
  byId("optimizer-field").hidden ||= form.elements.mode.value !== "training";
  const model = models.find((each) => each.name === byId("model").value);
  byId("cache-field").hidden = about === "runs" || model?.family !== "tokens";
  byId("shape-help").textContent = model ? { image: "batch x channels x height x width", tokens: "batch x tokens", features: "batch first" }[model.family] : "";
  const priced = PRICED[byId("objective").value];
  byId("price-field").hidden = !priced;
  if (priced) byId("price-label").textContent = priced[1];
  byId("price").toggleAttribute("list", false);
  if (priced?.[0] === "carbon") byId("price").setAttribute("list", "grids");
  byId("price-help").textContent = priced?.[0] === "price_per_hour" ? "Or one for each GPU: A30 = 0.5, H100 SXM = 2.5" : "";
}

function changed(target) {
  if (target.id === "model") {
    const model = models.find((each) => each.name === target.value);
    if (model) byId("shape").value = shapeText(model.input_shape);
    byId("cache").value = "";
  }
  if (target.name === "subject" && target.value === "runs" && byId("model").value === "resnet50") {
    byId("model").value = "bert_base";
    byId("shape").value = "32 x 128";
  }
  if (target.id === "objective" && PRICED[target.value]) byId("price").value = PRICED[target.value][2];
  show();
  ready();
}

function read() {
  const objective = byId("objective");
  const priced = PRICED[objective.value];
  const about = subject();
  const asked = {
    about, gpus: [...chosen], objective: objective.value, objectiveName: objective.selectedOptions[0].textContent,
    tariff: priced ? { [priced[0]]: (objective.value === "carbon" ? grid : prices)("price") } : {},
    cap: { ...given({ power_limit_w: positive("cap", "this is no power cap", "300") }), ...calibration() },
  };
  if (about === "generation") return { ...asked, ...generation() };
  if (about === "traffic") return { ...asked, ...traffic() };
  if (about === "images") return { ...asked, ...images() };
  if (about === "runs") return { ...asked, ...training() };
  return {
    ...asked,
    subject: about === "operations" ? operations() : { model: name("model", "resnet50"), input_shape: shapeOf("shape"), ...cache() },
    options: {
      mode: form.elements.mode.value, precision: byId("precision").value,
      ...run(), ...given({ optimizer: typed("optimizer") || null }),
    },
    limits: given({ max_time_s: milliseconds("deadline", "this is no deadline"), max_power_w: positive("budget", "this is no power budget", "250") }),
    batches: given({ batch_sizes: wholes("batches", "these are no batch sizes") }),
  };
}

function generation() {
  return {
    load: {
      model: name("llm", "llama3_1_8b"), prompt_tokens: lengths("prompt", "this is no number of tokens"),
      output_tokens: lengths("output", "this is no number of tokens"), engine: byId("engine").value,
    },
    batch: whole("batch", "this is no number of requests"), precision: byId("weights").value, share: Number(byId("share").value),
    limits: given({
      max_time_per_output_token_s: milliseconds("pace", "this is no time per token"),
      max_time_to_first_token_s: milliseconds("wait", "this is no time to the first token"),
    }),
  };
}

function traffic() {
  const { load, batch, precision, share, limits } = generation();
  const [p99_tpot_s, p99_ttft_s] = [limits.max_time_per_output_token_s ?? null, limits.max_time_to_first_token_s ?? null];
  return {
    load: { ...load, precision }, share, limits: given({ p99_ttft_s, p99_tpot_s }),
    boards: whole("boards", "this is no number of GPUs"), rate: positive("rate", "this is no rate", "5") ?? 1, batch,
    served: {
      duration_s: positive("seconds", "this is no time", "60") ?? 60, max_sequences: batch, tensor_parallel: share, router: byId("router").value,
      ...given({ clock_mhz: wholeOrNone("mhz", "this is no clock"), prefill_clock: wholeOrNone("prompt-mhz", "this is no clock") }),
    },
  };
}

function images() {
  const sizes = { frames: "frames", height: "pixels", width: "pixels", steps: "steps" };
  const own = Object.entries(sizes).map(([id, what]) => [id, wholeOrNone(id, `this is no number of ${what}`)]);
  return {
    pipeline: name("pipeline", "sd3_5_medium"),
    options: { batch: whole("copies", "this is no number of images"), precision: byId("pixels").value, ...given(Object.fromEntries(own)), ...run() },
  };
}

function training() {
  return {
    job: {
      model: name("model", "bert_base"), input_shape: shapeOf("shape"), samples: whole("samples", "this is no number of samples"),
      epochs: positive("epochs", "this is no number of epochs", "3") ?? 1,
    },
    together: whole("together", "this is no number of GPUs"),
    options: { precision: byId("numbers").value, sharding: byId("sharding").value, ...given({ lora: wholeOrNone("lora", "this is no rank") }), ...run() },
  };
}

/** The shape in a field; what is wrong with it is said there. */
function shapeOf(id) {
  try {
    return parseShape(typed(id));
  } catch (error) {
    if (error instanceof Refusal) error.problem.field = id;
    throw error;
  }
}

const run = () => ({ execution: byId("execution").value, host: byId("host").value });

const cache = () => given({ cache_length: wholeOrNone("cache", "this is no number of tokens") });

function name(id, example) {
  const text = typed(id);
  if (text) return text;
  const hint = id === "model" ? "or choose Operations above, and open a file" : null;
  throw new Refusal({ field: id, title: "no model is named", allowed: `a name from the list, such as ${example}`, hint });
}

function operations() {
  const form = "a list of operations, or an object that has one under operations: what joulecast extract MODEL SHAPE --json prints";
  const content = parseJson(byId("operations").value, "the operations are no JSON", form);
  const found = Array.isArray(content) ? content : content?.operations;
  if (!Array.isArray(found) || !found.length) throw new Refusal({ title: "there are no operations", allowed: form });
  const { name: title, input_shape: shape, dropped, assumptions } = content;
  return { operations: found, ...(title ? { name: title } : {}), ...(shape ? { input_shape: shape } : {}), ...(dropped?.length ? { dropped } : {}), ...(assumptions?.length ? { assumptions } : {}) };
}

/** Put the question into the address. A list that is too long for a link is left out, and the page says so. */
export async function remember() {
  const link = await written(subject(), rememberedGpus());
  byId("link-help").textContent = link ? "" : "This list is too long for a link: the address does not contain it.";
  address = link ?? "#view=operations";
  history.replaceState(null, "", address);
}

async function recall() {
  const kept = await readAddress(location.hash);
  if (!byId("price").value) byId("price").value = PRICED[byId("objective").value]?.[2] ?? "";
  recallGpus(kept);
  byId("more").open ||= ["execution", "host", "deadline", "budget", "pace", "wait", "mhz", "prompt-mhz", "cap", "batches", "optimizer"].some((id) => kept.has(id));
  show();
}
