// The API as a page: every path with its fields and an example, made of the OpenAPI document.
import { ask } from "./api.js";
import { byId, h, parseJson } from "./format.js";

const MOST = 4000; // Characters of an answer that are shown.

const TITLES = {
  predict: "Predict", choose: "Choose", generation: "Generation", models: "Models", catalogue: "What there is", system: "The service itself",
};

function show(document) {
  byId("about").textContent = document.info.description;
  const asked = Object.entries(document.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, told]) => ({ path, method, ...told })));
  byId("paths").replaceChildren(...Object.entries(TITLES).map(([tag, title]) => h("section", { class: "panel" },
    h("h2", {}, title), asked.filter((each) => each.tags?.includes(tag)).map((each) => entry(each, document.components.schemas)))));
}

function entry({ path, method, description, parameters = [], requestBody }, schemas) {
  const reference = requestBody?.content["application/json"]?.schema.$ref;
  const schema = reference ? schemas[reference.split("/").pop()] : null;
  const fields = schema
    ? Object.entries(schema.properties).map(([name, field]) => ({ name, field, required: schema.required?.includes(name) }))
    : parameters.map(({ name, schema: field, required, description: told }) => ({ name, field: { description: told, ...field }, required }));
  const example = schema?.examples?.[0];
  return h("details", {},
    h("summary", {}, h("code", {}, `${method.toUpperCase()} ${path}`), " ", h("span", {}, description)),
    fields.length ? h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Fields of ${method.toUpperCase()} ${path}` }, table(fields)) : null,
    example ? h("pre", { tabindex: 0, role: "region", "aria-label": `Example of ${path}` }, h("code", {}, curl(path, example))) : null,
    example || (method === "get" && !path.endsWith("/metrics") && !fields.some((each) => each.required)) ? trial(path, example) : null);
}

/** The example in a field to change, and what the service answers to it. */
function trial(path, example) {
  const body = example ? h("textarea", { rows: 6, spellcheck: "false", "aria-label": `Question to ${path}` }) : null;
  if (body) body.value = JSON.stringify(example, null, 1);
  const answer = h("pre", { class: "answer", tabindex: 0, role: "region", "aria-label": `Answer of ${path}`, hidden: true });
  const tell = (text) => { answer.textContent = text.length > MOST ? `${text.slice(0, MOST)}\n... ${text.length - MOST} characters more` : text; answer.hidden = false; };
  const send = async () => {
    try {
      const said = await ask(path.replace("/v1/", ""), body ? parseJson(body.value, "this is no JSON", "the fields above") : null);
      tell(typeof said === "string" ? said : JSON.stringify(said, null, 1));
    } catch (error) {
      tell(["title", "given", "allowed", "hint"].map((name) => error.problem?.[name]).filter(Boolean).join("\n") || String(error));
    }
  };
  return h("div", {}, body, h("button", { type: "button", onclick: send }, "Try it"), answer);
}

function table(fields) {
  return h("table", {},
    h("thead", {}, h("tr", {}, ["field", "value", "default", "meaning"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, fields.map(({ name, field, required }) => h("tr", {},
      h("th", { scope: "row" }, name), h("td", {}, kind(field)),
      h("td", {}, required ? "needed" : field.default === undefined ? "" : JSON.stringify(field.default)),
      h("td", { class: "told" }, field.description ?? "")))));
}

/** The type of a field in words, such as "integer or null". */
function kind(field) {
  const each = field.anyOf ?? [field];
  const words = each.map((one) => (one.enum ? one.enum.join(", ") : one.$ref ? "object" : one.type === "array" ? `list of ${kind(one.items ?? {})}` : one.type ?? ""));
  return [...new Set(words)].join(" or ");
}

const curl = (path, example) => `curl '${new URL(`.${path}`, location.href.replace(/docs$/, ""))}' \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`;

try {
  show(await ask("openapi.json"));
} catch (error) {
  byId("problem").textContent = error.message;
}
byId("results").setAttribute("aria-busy", "false");
