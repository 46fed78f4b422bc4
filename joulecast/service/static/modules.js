// Where the joules go: the energy tree of a prediction as an icicle. All joules are the service's; none are added up here.
import { byId, h, si } from "./format.js";

const ROW = 30;
const DEEPEST = 8;
const NARROWEST = 1; // Pixels; what is narrower cannot be seen.

/** Draw the energy tree that the service sent. */
export function icicle(tree) {
  draw([shortened(tree.root)]);
}

/** A module that consists of one other alone is drawn as one with it: "layers.0". */
function shortened(node) {
  const [only] = node.children;
  const alone = node.children.length === 1 && only.level === "module" && node.level === "module";
  if (alone && only.energy_j === node.energy_j) return shortened({ ...only, name: `${node.name}.${only.name}` });
  // Phases stay in their order; parts of a phase or module stand with the largest first.
  const order = (a, b) => (a.level === "phase" ? 0 : b.energy_j - a.energy_j);
  return { ...node, children: node.children.map(shortened).sort(order) };
}

/** Draw the last node of a trail and what it consists of; choosing a part shows it alone. */
function draw(trail, focus = false) {
  const shown = trail[trail.length - 1];
  const width = Math.max(320, byId("modules").clientWidth);
  const boxes = placed(shown, width);
  const height = (1 + Math.max(...boxes.map((box) => box.level))) * ROW;
  const drawn = boxes.map((box) => element(box, trail[0]));
  const tell = (g) => { byId("module-readout").textContent = g.getAttribute("aria-label"); };
  byId("modules").replaceChildren(h("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "tree", "aria-label": `Energy by module of ${shown.path || trail[0].name}`,
    onkeydown: (event) => moved(event, boxes, drawn, trail),
  }, drawn));
  drawn.forEach((g, i) => {
    g.addEventListener("click", () => (opens(boxes[i], trail) ? open(boxes[i], trail) : enter(drawn, i)));
    // Not on the picture: Chromium lets Tab stop at a picture that listens to the focus.
    for (const event of ["pointerenter", "focus"]) g.addEventListener(event, () => tell(g));
  });
  byId("module-readout").textContent = "";
  byId("trail").replaceChildren(...trail.flatMap((node, i) => {
    if (i === trail.length - 1) return [h("span", {}, `${node.name}: ${joules(node)}`)];
    return [h("button", { type: "button", onclick: () => draw(trail.slice(0, i + 1)) }, node.name), h("span", {}, "›")];
  }));
  drawn[0].setAttribute("tabindex", 0);
  if (focus) drawn[0].focus();
}

/** All boxes that can be seen, parents first: the node, where it lies, and the nodes from the shown one down to it. */
function placed(shown, width) {
  const boxes = [];
  const scale = shown.energy_j ? width / shown.energy_j : 0;
  const place = (node, left, level, into, parent) => {
    const box = { node, left, level, wide: level ? scale * node.energy_j : width, into, parent, children: [] };
    if (level && box.wide < NARROWEST) return;
    boxes.push(box);
    parent?.children.push(boxes.length - 1);
    let at = left;
    for (const child of level < DEEPEST ? node.children : []) {
      place(child, at, level + 1, [...into, child], box);
      at += scale * child.energy_j;
    }
  };
  place(shown, 0, 0, [], null);
  return boxes;
}

function element({ node, left, level, wide, parent, children }, whole) {
  const share = `${((100 * node.energy_j) / (whole.energy_j || 1)).toFixed(1)} %`;
  const operation = node.level === "operation";
  const label = fitting(operation || wide > 130 ? `${node.name} ${share}` : node.name, wide);
  const where = node.path && node.path !== node.name ? [`${operation ? "in " : ""}${node.path}`] : [];
  const told = [`${node.name} ${share}`, joules(node) + parts(node), ...(node.calls > 1 ? [`${node.calls} calls`] : []), ...where].join(", ");
  return h("g", {
    class: operation ? "operation" : "module", role: "treeitem", tabindex: -1, "aria-level": level + 1,
    "aria-setsize": parent ? parent.children.length : 1, "aria-expanded": children.length ? "true" : null,
    "aria-label": told.startsWith(label) ? told : `${label} ${told}`, // so that it can be called by what is written in it
  },
  h("rect", { x: left, y: level * ROW, width: wide, height: ROW, rx: 4 }),
  label ? h("text", { x: left + 7, y: level * ROW + 19, "aria-hidden": "true" }, label) : null);
}

const opens = (box, trail) => box.node.level !== "operation" && box.node !== trail[trail.length - 1];
const open = (box, trail, focus = false) => draw([...trail, ...box.into], focus);

/** Arrow keys as in any tree: along a row, up to what a part belongs to, down into it. */
function moved(event, boxes, drawn, trail) {
  const at = drawn.indexOf(event.target);
  const box = boxes[at];
  const row = box.parent ? box.parent.children : [0];
  const next = {
    ArrowRight: row[row.indexOf(at) + 1], ArrowLeft: row[row.indexOf(at) - 1],
    ArrowUp: boxes.indexOf(box.parent), ArrowDown: box.children[0], Home: 0, End: boxes.length - 1,
  }[event.key];
  if (next >= 0) enter(drawn, next);
  else if ((event.key === "Enter" || event.key === " ") && opens(box, trail)) open(box, trail, true);
  else if (event.key === "Escape" && trail.length > 1) draw(trail.slice(0, -1), true);
  else if (!event.key.startsWith("Arrow")) return;
  event.preventDefault();
}

/** Only one box can be reached by Tab: the one that was reached last. */
function enter(drawn, at) {
  drawn.forEach((g, i) => g.setAttribute("tabindex", i === at ? 0 : -1));
  drawn[at].focus();
}

const joules = (node) => `${node.unknown_parts && node.energy_j !== null ? "more than " : ""}${si(node.energy_j, "J")}`;

function parts(node) {
  const known = Object.entries(node.components_j).filter(([, value]) => value > 0);
  return known.length > 1 ? ` (${known.map(([name, value]) => `${name} ${si(value, "J")}`).join(", ")})` : "";
}

function fitting(text, wide) {
  const room = Math.floor((wide - 10) / 6.6);
  return text.length <= room ? text : room < 5 ? "" : `${text.slice(0, room - 1)}…`;
}
