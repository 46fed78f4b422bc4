// The table of operations with what each costs.
import { byId, h, number, si } from "./format.js";

/** The table of operations, most energy first. */
export function costTable(prediction, all) {
  const costs = prediction.operations.filter((c) => c.energy_j !== null).sort((a, b) => b.energy_j - a.energy_j);
  const shown = all ? costs : costs.slice(0, 10);
  const head = ["operation", "share", "energy", "device time", "power", "calls", "bound by", "source"];
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
