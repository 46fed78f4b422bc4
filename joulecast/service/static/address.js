// The question in the address, so that a view can be shared: fields as they are, a pasted list compressed.
import { byId } from "./format.js";

const MOST_LINK = 60_000; // Characters; servers and chats cut longer links off.
const MOST_LIST = 4_000_000; // What a service takes; a link that unpacks to more was made to do harm.

/** Fields that stand in the address under their own names, with what they are without. */
const FIELDS = {
  model: { model: "resnet50", shape: "32 x 3 x 224 x 224", cache: "", batches: "" },
  generation: { llm: "llama3_1_8b", prompt: "512", output: "512", batch: "64", weights: "bf16", engine: "vllm", share: "1", pace: "", wait: "" },
  traffic: { llm: "llama3_1_8b", prompt: "512", output: "512", batch: "64", weights: "bf16", engine: "vllm", share: "1", pace: "", wait: "", rate: "5", seconds: "60", boards: "1", router: "least_loaded", mhz: "", "prompt-mhz": "" },
  images: { pipeline: "sd3_5_medium", copies: "1", steps: "", height: "", width: "", frames: "", pixels: "bf16" },
  operations: {},
  runs: { model: "bert_base", shape: "32 x 128", samples: "100000", epochs: "3", together: "1", numbers: "bf16", sharding: "none", lora: "" },
};
const RUN = { execution: "eager", host: "usual" };
const ITERATION = { mode: "inference", precision: "default", optimizer: "", deadline: "", budget: "", ...RUN };
const ALL = { objective: "energy", price: "", cap: "" };
/** These are always there, so that an address says what it is about. */
const ALWAYS = new Set(["model", "shape", "mode", "precision", "objective", "samples", "epochs", "together", "llm", "prompt", "output", "batch", "pipeline", "rate", "seconds", "boards"]);

const fieldsOf = (subject) => ({ ...FIELDS[subject], ...({ generation: {}, traffic: {}, images: RUN, runs: RUN }[subject] ?? ITERATION), ...ALL });

const control = (id) => (id === "mode" ? byId("question").elements.mode : byId(id));

/** The address of what the form holds. */
export async function written(subject, others) {
  const kept = new URLSearchParams(subject === "model" ? {} : { view: subject });
  for (const [id, usual] of Object.entries(fieldsOf(subject))) {
    const { value } = control(id);
    if (ALWAYS.has(id) || (value !== usual && !control(id).closest?.("[hidden]"))) kept.set(id, value);
  }
  for (const [name, value] of Object.entries(others)) kept.set(name, value);
  if (subject === "operations") {
    const packed = await pack(byId("operations").value);
    if (packed.length > MOST_LINK) return null;
    kept.set("list", packed);
  }
  return `#${kept}`;
}

/** Put an address into the form. Gives its other parts. */
export async function read(hash) {
  const kept = new URLSearchParams(hash.slice(1));
  const subject = kept.get("view") in FIELDS ? kept.get("view") : "model";
  for (const [id, usual] of Object.entries(Object.assign({}, ...Object.values(FIELDS), ITERATION, ALL, FIELDS.model, FIELDS[subject]))) {
    const field = control(id);
    const value = kept.get(id) ?? usual;
    const possible = field.options ? [...field.options].some((option) => option.value === value) : id !== "mode" || value === "training";
    field.value = possible ? value : usual;
  }
  byId("question").elements.subject.value = subject;
  if (kept.has("list")) byId("operations").value = await unpack(kept.get("list"));
  return kept;
}

async function through(stream, bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader();
  const parts = [];
  let size = 0;
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    size += value.length;
    if (size > MOST_LIST) throw new RangeError("the list in this link is too long");
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function pack(text) {
  const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(compact(text)));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpack(text) {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
    return new TextDecoder().decode(await through(new DecompressionStream("deflate-raw"), bytes));
  } catch {
    return ""; // A link that was cut off: the form says that there are no operations.
  }
}

function compact(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}
