// The question of the page as a call of the library and of the command line.
import { settingsOf } from "./calibration.js";
import { boards, byId, h } from "./format.js";

function tuple(shape) {
  if (!shape) return "None";
  if (!Array.isArray(shape)) return `{${Object.entries(shape).map(([name, item]) => `"${name}": ${tuple(item)}`).join(", ")}}`;
  if (Array.isArray(shape[0])) return `[${shape.map(tuple).join(", ")}]`;
  return `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
}

/** A shape as texts, one for each input, as the command line and query strings take them. */
export function words(shape) {
  if (!shape) return [];
  if (!Array.isArray(shape)) return Object.entries(shape).map(([name, item]) => `${name}=${item.join(",")}`);
  return Array.isArray(shape[0]) ? shape.map((item) => item.join(",")) : [shape.join(",")];
}

const quoted = (value) => (/^[\w./=,-]+$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`);
const python = (value) => (value === Object(value) && !Array.isArray(value)
  ? `{${Object.entries(value).map(([name, item]) => `${python(name)}: ${python(item)}`).join(", ")}}`
  : JSON.stringify(value).replaceAll(",", ", "));
const keywords = (values) => Object.entries(values).map(([name, value]) => `, ${name}=${python(value)}`).join("");

/** Names of options that differ from those of arguments. */
const FLAGS = {
  power_limit_w: "--power-limit", max_time_s: "--max-time", max_power_w: "--max-power", prompt_tokens: "--prompt", output_tokens: "--output",
  max_time_per_output_token_s: "--max-time-per-token", max_time_to_first_token_s: "--max-first-token", precisions: "--precision",
  duration_s: "--duration", p99_ttft_s: "--p99-first-token", p99_tpot_s: "--p99-per-token",
};

function flags(values) {
  return Object.entries(values).flatMap(([name, value]) => {
    if (name === "mode") return ["--training"];
    const text = Array.isArray(value) ? value.join(",") : value === Object(value) ? Object.entries(value).map((pair) => pair.join("=")).join(",") : String(value);
    return [FLAGS[name] ?? `--${name.replaceAll("_", "-")}`, quoted(text)];
  });
}

const USUAL = { mode: "inference", precision: "default", execution: "eager", host: "usual" };
const unusual = (values, usual) => Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== null && value !== usual[name]));

/** The prediction of the first GPU, and the choice among all, in Python and on the command line. */
export function snippets(question, gpus, clock) {
  const { subject, options, objective, tariff, cap, limits, batches } = question;
  const model = subject.model ? python(subject.model) : 'joulecast.Network.load("network.json")';
  const shape = subject.model ? tuple(subject.input_shape) : "None";
  const run = { ...unusual(options, USUAL), ...(subject.cache_length ? { cache_length: subject.cache_length } : {}), ...settingsOf(cap, gpus[0]) };
  const choice = { objective, ...run, ...cap, ...tariff, ...limits, ...batches };
  const named = [subject.model ? quoted(subject.model) : "network.json", ...(subject.model ? words(subject.input_shape).map(quoted) : [])];
  return {
    Python: [
      "import joulecast", "",
      `prediction = joulecast.predict(${model}, ${shape}, ${python(gpus[0])}${clock ? `, ${clock}` : ""}${keywords(run)})`,
      `choices = joulecast.best(${model}, ${shape}, gpus=${python(gpus)}${keywords(choice)})`,
    ].join("\n"),
    "Command line": [
      ["joulecast predict", ...named, "--gpu", quoted(gpus[0]), ...(clock ? ["--clock", clock] : []), ...flags(run)].join(" "),
      ["joulecast best", ...named, "--gpu", quoted(gpus.join(",")), ...flags(choice)].join(" "),
    ].join("\n"),
  };
}

/** The same for text that a language model generates. */
export function servingSnippets(question, gpus) {
  const { load, batch, precision, share, objective, tariff, cap, limits } = question;
  const { model, engine, ...tokens } = load;
  const several = boards(gpus[0], share);
  const usual = { precision: "bf16", engine: "vllm", tensor_parallel: 1, objective: "energy" };
  const one = { batch, ...tokens, ...unusual({ precision, engine, tensor_parallel: share }, usual), ...settingsOf(cap, gpus[0]) };
  const counted = { ...(precision === "bf16" ? {} : { precisions: [precision] }), ...(share > 1 ? { counts: [share] } : {}) };
  const all = { ...tokens, ...counted, ...unusual({ engine, objective }, usual), ...tariff, ...cap, ...limits };
  return {
    Python: [
      "import joulecast", "",
      `prediction = joulecast.predict_generation(${python(model)}, ${python(several)}${keywords(one)})`,
      `ways = joulecast.best_generation(${python(model)}${keywords({ ...all, gpus })})`, "ways.pareto()",
    ].join("\n"),
    "Command line": [
      ["joulecast generate", quoted(model), "--gpu", quoted(several), ...flags(one)].join(" "),
      ["joulecast best-generation", quoted(model), "--gpu", quoted(gpus.join(",")), ...flags(all)].join(" "),
    ].join("\n"),
  };
}

/** The same for traffic: the simulation, and the GPUs that hold its limits. */
export function trafficSnippets({ load, served, rate, boards: count, share, batch, objective, limits, tariff, cap }, gpus) {
  const { model, engine, precision, ...tokens } = load;
  const { clock_mhz: clock, ...rest } = served;
  const several = boards(gpus[0], count);
  const usual = { precision: "bf16", engine: "vllm", objective: "energy", router: "round_robin", clock: null };
  const shared = { ...tokens, ...unusual({ engine }, usual) };
  const one = { ...shared, ...unusual({ precision, clock: clock ?? null, ...rest }, usual), ...settingsOf(cap, gpus[0]) };
  const all = { ...shared, ...(precision === "bf16" ? {} : { precisions: [precision] }), ...(share > 1 ? { counts: [share] } : {}), batches: [batch], ...limits, ...unusual({ objective }, usual), ...tariff, ...cap };
  return {
    Python: [
      "import joulecast", "",
      `traffic = joulecast.simulate_serving(${python(model)}, ${python(several)}, requests=${rate}${keywords(one)})`,
      `ways = joulecast.best_generation(${python(model)}, rate_per_s=${rate}${keywords({ ...all, gpus })})`,
    ].join("\n"),
    "Command line": [
      ["joulecast simulate", quoted(model), quoted(several), "--rate", rate, ...flags(one)].join(" "),
      ["joulecast best-generation", quoted(model), "--gpu", quoted(gpus.join(",")), "--rate", rate, ...flags(all)].join(" "),
    ].join("\n"),
  };
}

/** The same for images and videos. */
export function imageSnippets({ pipeline, options, cap }, gpus) {
  const own = { ...unusual(options, { batch: 1, precision: "bf16", execution: "eager", host: "usual" }), ...settingsOf(cap, gpus[0]) };
  return {
    Python: ["import joulecast", "", `prediction = joulecast.predict_image(${python(pipeline)}, ${python(gpus[0])}${keywords(own)})`].join("\n"),
    "Command line": ["joulecast image", quoted(pipeline), "--gpu", quoted(gpus[0]), ...flags(own)].join(" "),
  };
}

/** The same for a whole training run. */
export function runSnippets({ job, together, options, tariff, cap }, gpus) {
  const { model, input_shape: shape, ...rest } = job;
  const several = boards(gpus[0], together);
  const own = { ...rest, ...unusual(options, { precision: "default", sharding: "none", optimizer: "adamw", execution: "eager", host: "usual" }), ...tariff, ...settingsOf(cap, gpus[0]) };
  return {
    Python: ["import joulecast", "", `run = joulecast.predict_run(${python(model)}, ${tuple(shape)}, ${python(several)}${keywords(own)})`].join("\n"),
    "Command line": ["joulecast run", quoted(model), ...words(shape).map(quoted), "--gpu", quoted(several), ...flags(own)].join(" "),
  };
}

export function showCalls(id, found) {
  byId(id).replaceChildren(...Object.entries(found).map(([title, code]) => h("div", { class: "call" },
    h("h3", {}, title),
    h("button", { type: "button", "aria-label": `Copy ${title}`, onclick: (event) => copy(event.currentTarget, code) }, "Copy"),
    h("pre", { tabindex: 0, role: "region", "aria-label": title }, h("code", {}, code)))));
}

async function copy(button, code) {
  try {
    await navigator.clipboard.writeText(code);
    button.textContent = "Copied";
  } catch {
    // No clipboard without TLS or permission: what is selected can be copied by hand.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
