// The form: what can be chosen, and what was; kept in the address, so that a view can be shared.
import { ask, Refusal, setToken } from "./api.js";
import { byId, h, parseJson, parseShape, series, shapeText } from "./format.js";

const MOST = 4;
const PRICED = { cost: ["price_per_hour", "Price of a GPU hour", "1.00"], carbon: ["carbon", "Grid: country, or g CO2 per kWh", "DE"] };
const EXAMPLE = JSON.stringify([{ kind: "linear", input_shapes: [[32, 1024]], attributes: { out_features: 4096 }, count: 3 }, { kind: "gelu", input_shapes: [[32, 4096]], count: 3 }], null, 1);
const RUNS = { eager: "eager", graph: "as a CUDA graph", compiled: "torch.compile" };
const form = byId("question");
const chosen = [];
/** The clock chosen for a GPU, by its full name: "default", "optimum", or MHz. */
export const clocks = {};
let models = [];
let gpus = [];
let ready = () => {};

/** Fill the form, and call `answer` with the question now and whenever it changes. Gives the catalogue of GPUs. */
export async function setUp(answer, refuse) {
  const submit = () => {
    try {
      const question = read();
      remember();
      answer(question);
    } catch (error) {
      refuse(error);
    }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); if (byId("token").value) return enter(answer, refuse); submit(); return undefined; });
  form.addEventListener("change", (event) => { if (event.target.id !== "gpu" && event.target.id !== "token") changed(event.target, submit); });
  byId("add-gpu").addEventListener("click", () => add(submit));
  byId("gpu").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); add(submit); } });
  byId("gpu").addEventListener("input", (event) => { if (event.inputType === "insertReplacementText" || !event.inputType) add(submit, true); });
  // An address that is pasted into an open page asks its own question.
  addEventListener("hashchange", () => { if (gpus.length) { recall(); show(); submit(); } });
  ready = submit;
  byId("operations").value = EXAMPLE;
  return fill(submit);
}

async function enter(answer, refuse) {
  setToken(byId("token").value);
  byId("token").value = "";
  byId("token-field").hidden = true;
  await fill(ready).catch(refuse);
}

async function fill(submit) {
  const [listed, catalogue, runs, version] = await Promise.all([ask("models"), ask("gpus"), ask("execution"), ask("version")]);
  models = listed.models;
  gpus = catalogue.gpus;
  byId("models").replaceChildren(...models.map((model) => h("option", { value: model.name })));
  byId("gpus").replaceChildren(...gpus.map((gpu) => h("option", { value: gpu.short_name }, gpu.measured ? "measured" : "never measured")));
  byId("execution").replaceChildren(...runs.executions.map((name) => h("option", { value: name }, RUNS[name] ?? name)));
  byId("host").replaceChildren(...runs.hosts.map(({ name, factor }) => h("option", { value: name }, factor === 1 ? name : `${name} (${factor} ×)`)));
  byId("version").textContent = `joulecast ${version.joulecast}`;
  recall();
  show();
  submit();
  return gpus;
}

const find = (name) => {
  const folded = (text) => text.toLowerCase().replaceAll(/[^a-z0-9]/g, "");
  return gpus.find((gpu) => [gpu.name, gpu.short_name, ...gpu.aliases].some((each) => folded(each) === folded(name)));
};

function add(submit, quietly = false) {
  const field = byId("gpu");
  const gpu = find(field.value);
  if (!gpu) {
    if (!quietly && field.value) { field.setCustomValidity("No GPU of the catalogue has this name"); field.reportValidity(); field.setCustomValidity(""); }
    return;
  }
  field.value = "";
  if (!chosen.includes(gpu) && chosen.length < MOST) { chosen.push(gpu); show(); submit(); }
}

function show() {
  byId("chosen").replaceChildren(...chosen.map((gpu, i) => h("li", { "--series": series(i) },
    h("span", {}, gpu.short_name),
    h("button", { type: "button", "aria-label": `Remove ${gpu.short_name}`, onclick: () => { if (chosen.length > 1) { chosen.splice(i, 1); show(); ready(); byId("gpu").focus(); } } }, "×"))));
  byId("gpu").disabled = chosen.length >= MOST;
  const listed = form.elements.subject.value === "operations";
  byId("by-model").hidden = listed;
  byId("by-operations").hidden = !listed;
  const model = models.find((each) => each.name === byId("model").value);
  byId("cache-field").hidden = model?.family !== "tokens";
  byId("shape-help").textContent = model ? { image: "batch x channels x height x width", tokens: "batch x tokens", features: "batch first" }[model.family] : "";
  const priced = PRICED[byId("objective").value];
  byId("price-field").hidden = !priced;
  if (priced) byId("price-label").textContent = priced[1];
}

function changed(target, submit) {
  if (target.id === "model") {
    const model = models.find((each) => each.name === target.value);
    if (model) byId("shape").value = shapeText(model.input_shape);
    byId("cache").value = "";
  }
  if (target.id === "objective" && PRICED[target.value]) byId("price").value = PRICED[target.value][2];
  show();
  submit();
}

function read() {
  const objective = byId("objective");
  const priced = PRICED[objective.value];
  const subject = form.elements.subject.value === "operations"
    ? operations()
    : { model: model(), input_shape: parseShape(byId("shape").value), ...cache() };
  return {
    subject,
    options: {
      mode: form.elements.mode.value, precision: byId("precision").value,
      execution: byId("execution").value, host: byId("host").value,
    },
    gpus: [...chosen],
    objective: objective.value,
    objectiveName: objective.selectedOptions[0].textContent,
    tariff: priced ? { [priced[0]]: price(objective.value) } : {},
  };
}

function cache() {
  const text = byId("cache").value.trim();
  if (!text || byId("cache-field").hidden) return {};
  if (/^[1-9]\d*$/.test(text)) return { cache_length: Number(text) };
  throw new Refusal({ title: "this is no number of tokens", given: text, allowed: "1, 2, 3, ...; nothing for a pass without a cache" });
}

function model() {
  const name = byId("model").value.trim();
  if (name) return name;
  throw new Refusal({ title: "no model is named", allowed: "a name from the list, such as resnet50", hint: "or paste operations: choose Operations above" });
}

function price(objective) {
  const text = byId("price").value.trim();
  if (text && Number.isFinite(Number(text))) return Number(text);
  if (text && objective === "carbon") return text;
  throw new Refusal(objective === "carbon"
    ? { title: "the grid is missing", allowed: "a country such as DE, or grams of CO2 per kWh" }
    : { title: "this is no price", given: text || null, allowed: "a number, in any currency, such as 1.20" });
}

function operations() {
  const form = "a list of operations, or an object that has one under operations: what joulecast extract MODEL SHAPE --json prints";
  const content = parseJson(byId("operations").value, "the operations are no JSON", form);
  const listed = Array.isArray(content) ? content : content?.operations;
  if (!Array.isArray(listed) || !listed.length) throw new Refusal({ title: "there are no operations", allowed: form });
  return { operations: listed, ...(content.name ? { name: content.name } : {}) };
}

/** Put the question into the address. */
export function remember() {
  if (form.elements.subject.value === "operations") return;
  const kept = new URLSearchParams({
    model: byId("model").value, shape: byId("shape").value, mode: form.elements.mode.value, precision: byId("precision").value,
    gpus: chosen.map((gpu) => gpu.short_name).join(","), objective: byId("objective").value,
    ...Object.fromEntries(["execution", "host"].filter((id) => byId(id).selectedIndex).map((id) => [id, byId(id).value])),
    ...(byId("cache").value ? { cache: byId("cache").value } : {}),
    ...(PRICED[byId("objective").value] ? { price: byId("price").value } : {}),
    ...(chosen.some((gpu) => clocks[gpu.name]) ? { clocks: chosen.map((gpu) => clocks[gpu.name] ?? "default").join(",") } : {}),
  });
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  byId("model").value = kept.get("model") ?? "resnet50";
  byId("shape").value = kept.get("shape") ?? "32 x 3 x 224 x 224";
  byId("cache").value = kept.get("cache") ?? "";
  for (const [id, usual] of [["precision", "default"], ["objective", "energy"], ["execution", "eager"], ["host", "usual"]]) {
    byId(id).value = [...byId(id).options].some((o) => o.value === kept.get(id)) ? kept.get(id) : usual;
  }
  byId("price").value = kept.get("price") ?? PRICED[byId("objective").value]?.[2] ?? "";
  form.elements.mode.value = kept.get("mode") === "training" ? "training" : "inference";
  form.elements.subject.value = "model";
  chosen.splice(0, chosen.length, ...(kept.get("gpus") ?? "A30,H100 SXM").split(",").map(find).filter(Boolean).slice(0, MOST));
  if (!chosen.length) chosen.push(gpus[0]);
  const wanted = (kept.get("clocks") ?? "").split(",");
  Object.keys(clocks).forEach((name) => delete clocks[name]);
  chosen.forEach((gpu, i) => { if (wanted[i] === "optimum" || Number(wanted[i]) > 0) clocks[gpu.name] = wanted[i]; });
}
