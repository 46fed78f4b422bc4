// Energy over time of all ways to run something, with their Pareto front; points are named, and choose their GPU.
import { byId, h, si } from "./format.js";
import { chosen, chooseByName } from "./gpus.js";
import { axis, colour, place } from "./plots.js";

const HINT = "Point at it, tap, or use the arrow keys to read it off; a click or Enter compares that GPU.";
const REACH = 30; // Pixels from the cursor within which a point is read off.

/** Round values within a logarithmic axis: 1, 2, 5, 10, ..., closer together where it spans little. */
function roundTicks(plot, index, low, high) {
  // Along the bottom of a phone there is room for few.
  const crowded = index === 0 && plot.width < 480 && high / low > 12;
  const steps = crowded || high / low > 1000 ? [1] : high / low > 12 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
  const ticks = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    ticks.push(...steps.map((step) => step * power).filter((tick) => tick >= low && tick <= high));
  }
  return ticks;
}
const logarithmic = { splits: roundTicks, filter: (plot, ticks) => ticks };

const around = (u, low, high) => [low / 1.12, high * 1.12];

/** Points that no other point beats in both, fastest first. */
export function paretoFront(points) {
  const front = [];
  for (const point of [...points].sort((a, b) => a.x - b.x || a.y - b.y)) {
    if (!front.length || point.y < front[front.length - 1].y) front.push(point);
  }
  return front;
}

/**
 * Energy over time of all points.
 * points: [{x: seconds, y: joules, gpu: full name, name, told, line}]; points of a compared GPU with the same line (a batch) are
 * joined, the fainter the smaller; mine: {full name of a GPU: place}; title: what x is.
 */
export function frontChart(id, points, front, mine, title) {
  const table = (some) => { const sorted = [...some].sort((a, b) => a.x - b.x); return [sorted.map((p) => p.x), sorted.map((p) => p.y)]; };
  const places = Object.entries(mine);
  const lines = places.flatMap(([gpu, at]) => {
    const own = points.filter((p) => p.gpu === gpu);
    const batches = [...new Set(own.map((p) => p.line))].sort((a, b) => a - b);
    return batches.map((line, i) => ({ at, strength: 100 * (i + 2) / (batches.length + 1), own: own.filter((p) => p.line === line) }));
  });
  const groups = [points.filter((p) => !(p.gpu in mine)), ...lines.map(({ own }) => own)];
  const data = uPlot.join([...groups.map(table), table(front)]);
  const drawn = (fill, size) => ({
    stroke: fill, width: 0, paths: () => null, points: { show: true, size, fill, stroke: fill, space: 0, width: 0 },
  });
  const joined = (stroke) => ({ stroke, width: 1.2, spanGaps: true, points: { show: true, size: 6, fill: stroke, stroke, space: 0, width: 0 } });
  const told = (unit) => (u, ticks) => ticks.map((tick) => (tick === null ? null : si(tick, unit)));
  const out = byId(`${id}-readout`);
  const options = {
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: false, distr: 3, range: around }, y: { distr: 3, range: around } },
    axes: [
      axis(told("s"), { label: title, labelSize: 18, labelFont: "12px system-ui", size: 34, space: 60, ...logarithmic }),
      axis(told("J"), { size: 62, ...logarithmic }),
    ],
    series: [
      {},
      drawn(colour("--faint"), 3.5),
      ...lines.map(({ at, strength }) => joined(`color-mix(in srgb, ${colour(`--s${at}`)} ${strength}%, ${colour("--card")})`)),
      { stroke: colour("--ink"), width: 2, spanGaps: true, points: { show: false } },
    ],
    hooks: {
      draw: [(plot) => names(plot, named(points, front, mine), mine)],
      setCursor: [(plot) => readOff(plot, points, out)],
    },
  };
  out.textContent = HINT;
  place(id, options, data, `Energy over ${title}, both logarithmic. Front from ${[front[0], front[front.length - 1]].map((p) => p.told).join(" to ")}`);
  const box = byId(id);
  const step = box.onkeydown;
  box.onkeydown = (event) => { if (event.key === "Enter" && box.point) { event.preventDefault(); chooseByName(box.point.gpu); } else step(event); };
  // A finger reads off; what it has read off has a button below.
  box.onclick = (event) => { if (box.point && event.pointerType !== "touch") chooseByName(box.point.gpu); };
}

/** One point for each GPU that is compared or on the front: its best there. */
function named(points, front, mine) {
  const found = new Map();
  for (const point of front) if (!found.has(point.gpu)) found.set(point.gpu, point);
  for (const gpu of Object.keys(mine)) {
    const own = points.filter((p) => p.gpu === gpu);
    if (own.length) found.set(gpu, own.reduce((a, b) => (b.y < a.y ? b : a)));
  }
  return [...found.values()].sort((a, b) => (b.gpu in mine) - (a.gpu in mine));
}

/** Write the names beside their points, those that are compared first, where there is room. */
function names(plot, some, mine) {
  const { ctx } = plot;
  const ratio = devicePixelRatio;
  const taken = [];
  ctx.save();
  ctx.font = `${12 * ratio}px system-ui`;
  ctx.lineJoin = "round";
  ctx.textAlign = "left"; // uPlot leaves it as it drew the axes.
  ctx.textBaseline = "alphabetic";
  for (const point of some) {
    const wide = ctx.measureText(point.name).width;
    const high = 15 * ratio;
    const x = plot.valToPos(point.x, "x", true);
    const y = plot.valToPos(point.y, "y", true);
    const right = plot.bbox.left + plot.bbox.width;
    const low = plot.bbox.top + plot.bbox.height;
    const places = [[x - wide / 2, y + 20 * ratio], [x - wide - 8 * ratio, y + 4 * ratio], [x + 8 * ratio, y - 6 * ratio], [x - wide / 2, y - 10 * ratio]];
    const free = places.find(([left, base]) => left > plot.bbox.left && left + wide < right && base < low
      && !taken.some((t) => left < t.left + t.wide && t.left < left + wide && base - high < t.base && t.base - high < base));
    if (!free) continue;
    const [left, base] = free;
    taken.push({ left, base, wide });
    ctx.lineWidth = 3 * ratio;
    ctx.strokeStyle = colour("--card");
    ctx.strokeText(point.name, left, base);
    ctx.fillStyle = point.gpu in mine ? colour(`--s${mine[point.gpu]}`) : colour("--ink");
    ctx.fillText(point.name, left, base);
  }
  ctx.restore();
}

/** Say which point is nearest, and offer to compare its GPU. */
function readOff(plot, points, out) {
  const { left, top } = plot.cursor;
  const box = plot.root.parentElement;
  if (left < 0) {
    // A finger that leaves the chart goes to the button.
    if (!out.contains(document.activeElement) && !out.matches(":hover")) out.textContent = HINT;
    box.point = null;
    return;
  }
  let best = null;
  let least = REACH ** 2;
  for (const point of points) {
    const away = (plot.valToPos(point.x, "x") - left) ** 2 + (plot.valToPos(point.y, "y") - top) ** 2;
    if (away < least) [best, least] = [point, away];
  }
  box.point = best;
  box.classList.toggle("pointed", Boolean(best));
  if (!best) {
    out.textContent = HINT;
    return;
  }
  const compared = chosen.some((gpu) => gpu.name === best.gpu);
  out.replaceChildren(best.told, ...(compared ? [] : [" ", h("button", { type: "button", class: "link", onclick: () => chooseByName(best.gpu) }, `Compare ${best.short}`)]));
}
