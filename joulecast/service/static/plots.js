// What all charts share: where they are drawn by uPlot, axes, and reading them off by keys.
import { byId } from "./format.js";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plots = new Map();

export function place(id, options, data, label) {
  plots.get(id)?.destroy();
  const box = byId(id);
  const size = () => ({ width: Math.max(200, box.clientWidth), height: box.clientHeight });
  const plot = new uPlot({ ...size(), legend: { show: false }, ...options }, data, box);
  plots.set(id, plot);
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", label);
  box.tabIndex = 0;
  box.onkeydown = (event) => step(plot, event);
  new ResizeObserver(() => plots.get(id) === plot && plot.setSize(size())).observe(box);
}

/** The arrow keys move what is read off. */
function step(plot, event) {
  const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!way) return;
  event.preventDefault();
  const xs = plot.data[0];
  const now = plot.cursor.left < 0 ? (way > 0 ? -1 : xs.length) : plot.valToIdx(plot.posToVal(plot.cursor.left, "x"));
  const next = Math.min(xs.length - 1, Math.max(0, now + way));
  const known = plot.data.slice(1).map((values) => values[next]).find((value) => value !== null && value !== undefined);
  plot.setCursor({ left: plot.valToPos(xs[next], "x"), top: known === undefined ? 0 : plot.valToPos(known, "y") });
}

export function axis(values, extra = {}) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--soft"), grid: line, ticks: { ...line, size: 4 }, font: "12px system-ui", values, ...extra };
}

export function dot(plot, x, y, radius, fill, stroke) {
  const { ctx } = plot;
  const ratio = devicePixelRatio;
  ctx.beginPath();
  ctx.arc(plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), radius * ratio, 0, 2 * Math.PI);
  ctx.fillStyle = fill;
  ctx.fill();
  ctx.lineWidth = 2 * ratio;
  ctx.strokeStyle = stroke;
  ctx.stroke();
}
