// The page: asks what the form holds, and shows the answer in the view that it belongs to.
import { Refusal } from "./api.js";
import { setUp } from "./form.js";
import { byId, h } from "./format.js";
import * as generation from "./generation_view.js";
import * as images from "./image_view.js";
import * as model from "./model_view.js";
import * as runs from "./run_view.js";
import * as traffic from "./traffic_view.js";

const VIEWS = [model, generation, traffic, images, runs];
let shown = model;
let running = null;

const viewOf = (question) => ({ generation, traffic, images, runs })[question.about] ?? model;

async function answer(question) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  byId("results").setAttribute("aria-busy", "true");
  say("Predicting");
  try {
    const view = viewOf(question);
    await view.answer(question, signal);
    shown = view;
    byId("problem").hidden = true;
    mark(null);
    for (const each of VIEWS) each.box.hidden = each !== view;
    view.box.classList.remove("stale");
    view.show(answer);
    say("");
  } catch (error) {
    if (error.name === "AbortError") return;
    refuse(error);
  }
  if (running?.signal === signal) byId("results").setAttribute("aria-busy", "false");
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
    ...(shown.box.hidden ? [] : [h("p", {}, "Below is still the answer to the question before.")]));
  shown.box.classList.add("stale");
  mark(problem.field ?? fieldOf(problem));
  byId("problem").hidden = false;
  byId("token-field").hidden = problem.status !== 401;
  if (problem.status === 401) byId("token").focus();
  say("");
}

/** Mark the field that a problem is about, and no other; the keyboard goes there. */
function mark(id) {
  for (const field of document.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-errormessage");
  }
  const field = id && byId(id);
  if (!field || field.closest("[hidden]")) return;
  field.closest("details")?.setAttribute("open", "");
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", "problem");
  field.focus({ preventScroll: !narrow.matches });
}

/** The field whose text the service refuses. */
function fieldOf({ given }) {
  const said = String(given ?? "").replace(/^'|'$/g, "").replace(/^\w+ (?=\d+ x )/, ""); // Shapes have the name of the input before them.
  const fields = [...byId("question").querySelectorAll("input:not([type=radio]):not([type=file])")].filter((field) => !field.closest("[hidden]"));
  return said && fields.find((field) => field.value.trim() === said)?.id;
}

for (const view of VIEWS) view.listen(answer, refuse);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown.charts());
// Where there is one column, the answer stands before the form, in the order of the keyboard, too.
const narrow = matchMedia("(max-width: 60rem)");
const order = () => { const [first, second] = narrow.matches ? ["results", "question"] : ["question", "results"]; byId(first).parentElement.append(byId(first), byId(second)); };
narrow.addEventListener("change", order);
order();
byId("question").addEventListener("submit", () => { if (narrow.matches) byId("results").scrollIntoView(); });
byId("ask").addEventListener("click", () => { byId("question").scrollIntoView(); byId("question").querySelector("input:checked").focus({ preventScroll: true }); });

let wide = innerWidth;
// In the next frame, because columns change places after this event.
addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; requestAnimationFrame(() => model.where()); } });

setUp(answer, refuse).catch(refuse);
