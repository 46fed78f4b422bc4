// Where the joules go: an icicle of modules, and a table of operations.
import { byId, h, si } from "./format.js";

const ROW = 30;
const DEEPEST = 8;

/** The tree of modules with the energy of each; operations are its leaves. */
export function moduleTree(operations, name) {
  const root = { name, energy_j: 0, children: new Map(), path: "" };
  for (const cost of operations) {
    if (cost.energy_j === null) continue;
    const paths = cost.module_paths.length ? cost.module_paths : [""];
    const counts = cost.module_counts?.length ? cost.module_counts : paths.map(() => 1);
    const all = counts.reduce((a, b) => a + b, 0);
    paths.forEach((path, i) => add(root, path, cost, (cost.energy_j * counts[i]) / all));
  }
  root.children.forEach(shorten);
  return root;
}

/** A module that consists of one other alone is drawn as one with it: "layers.0". */
function shorten(node) {
  while (node.children.size === 1 && ![...node.children.values()][0].bound_by) {
    const [only] = node.children.values();
    Object.assign(node, { name: `${node.name}.${only.name}`, path: only.path, children: only.children });
  }
  node.children.forEach(shorten);
}

function add(root, path, cost, energy_j) {
  let node = root;
  node.energy_j += energy_j;
  let known = "";
  for (const part of path ? path.split(".") : []) {
    known = known ? `${known}.${part}` : part;
    node = child(node, part, { name: part, path: known });
    node.energy_j += energy_j;
  }
  const leaf = child(node, `\u0000${cost.kind} ${cost.bound_by}`, { name: cost.kind, path: known, bound_by: cost.bound_by });
  leaf.energy_j += energy_j;
}

function child(node, key, fresh) {
  if (!node.children.has(key)) node.children.set(key, { energy_j: 0, children: new Map(), ...fresh });
  return node.children.get(key);
}

/** Draw a module and what it consists of; choosing one shows it alone. */
export function icicle(root, trail = [root]) {
  const shown = trail[trail.length - 1];
  const width = Math.max(320, byId("modules").clientWidth);
  const boxes = [];
  let depth = 0;
  const lay = (node, left, level, into) => {
    depth = Math.max(depth, level);
    const wide = (width * node.energy_j) / shown.energy_j;
    if (wide < 1) return;
    boxes.push(box(node, left, level, wide, root, into));
    if (level === DEEPEST) return;
    let at = left;
    for (const each of [...node.children.values()].sort((a, b) => b.energy_j - a.energy_j)) {
      lay(each, at, level + 1, [...into, each]);
      at += (width * each.energy_j) / shown.energy_j;
    }
  };
  const box = (node, left, level, wide, whole, into) => {
    const share = `${((100 * node.energy_j) / whole.energy_j).toFixed(1)} %`;
    const told = `${node.path || whole.name}${node.bound_by ? ` ${node.name}, bound by ${node.bound_by}` : ""}: ${si(node.energy_j, "J")}, ${share}`;
    const opens = !node.bound_by && node !== shown && wide > 8;
    const open = () => icicle(root, into);
    const label = fitting(node.bound_by || wide > 130 ? `${node.name} ${share}` : node.name, wide);
    return h("g", {
      class: node.bound_by || "module", role: opens ? "button" : null, tabindex: opens ? 0 : null,
      "aria-label": opens ? `${label} ${told}` : null, onclick: opens ? open : () => {},
      onkeydown: opens ? (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), open()) : () => {},
    },
      h("title", {}, told),
      h("rect", { x: left, y: level * ROW, width: wide, height: ROW, rx: 4 }),
      label ? h("text", { x: left + 7, y: level * ROW + 19, "aria-hidden": "true" }, label) : null);
  };
  lay(shown, 0, 0, trail);
  const height = (depth + 1) * ROW;
  byId("modules").replaceChildren(h("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Energy by module of ${shown.path || root.name}`,
  }, boxes));
  byId("trail").replaceChildren(...trail.flatMap((node, i) => {
    const name = i ? node.name : root.name;
    if (i === trail.length - 1) return [h("span", {}, `${name}: ${si(node.energy_j, "J")}`)];
    return [h("button", { type: "button", onclick: () => icicle(root, trail.slice(0, i + 1)) }, name), h("span", {}, "›")];
  }));
}

function fitting(text, wide) {
  const room = Math.floor((wide - 10) / 6.6);
  return text.length <= room ? text : room < 5 ? "" : `${text.slice(0, room - 1)}…`;
}

/** The table of operations, most energy first. */
export function costTable(prediction, all) {
  const costs = prediction.operations.filter((c) => c.energy_j !== null).sort((a, b) => b.energy_j - a.energy_j);
  const shown = all ? costs : costs.slice(0, 10);
  const head = ["operation", "share", "energy", "device time", "power", "calls", "bound by", "source"];
  const number = (text) => h("td", { class: "number" }, text);
  byId("costs").replaceChildren(
    h("caption", { class: "unseen" }, "Operations, most energy first"),
    h("thead", {}, h("tr", {}, head.map((title, i) => h("th", { scope: "col", class: i > 1 && i < 6 ? "number" : null }, title)))),
    h("tbody", {}, shown.map((cost) => {
      const share = cost.energy_j / prediction.energy_j;
      return h("tr", { class: `bound-${cost.bound_by}` },
        h("th", { scope: "row" }, operationText(cost)),
        h("td", { class: "share" }, h("i", { "--share": cost.energy_j / costs[0].energy_j }), `${(100 * share).toFixed(1)} %`),
        number(si(cost.energy_j, "J")), number(si(cost.device_time_s, "s")), number(si(cost.power_w, "W")), number(`${cost.count}`),
        h("td", {}, cost.bound_by), h("td", {}, cost.source));
    })),
  );
  byId("costs-more").textContent = costs.length > shown.length ? `Show all ${costs.length} operations` : "";
}

function operationText(cost) {
  const shapes = cost.input_shapes.map((shape) => shape.join("x"));
  const parts = [cost.kind, shapes.length > 3 ? `${shapes.length} inputs` : shapes.join(", ")];
  const { attributes } = cost;
  const out = attributes.out_channels ?? attributes.out_features;
  if (out) parts.push(`→ ${out}`);
  for (const [name, short] of [["kernel_size", "k"], ["stride", "s"], ["groups", "g"]]) {
    if (name in attributes && attributes[name] !== 1 && attributes[name] !== null) parts.push(`${short}${attributes[name]}`);
  }
  return `${parts.join(" ")} ${cost.precision}`;
}
