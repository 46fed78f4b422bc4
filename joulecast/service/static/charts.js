// Charts, drawn by uPlot: a quantity over the clock, and energy over time of all GPUs.
import { byId, mhz, si } from "./format.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plots = new Map();
const HINT = "Point at it, tap, or use the arrow keys to read it off.";

function place(id, options, data, label) {
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

function axis(values, extra = {}) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--soft"), grid: line, ticks: { ...line, size: 4 }, font: "12px system-ui", values, ...extra };
}

function dot(plot, x, y, radius, fill, stroke) {
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

/**
 * One quantity over the clock.
 * curves: [{name, place, rows, optimum, chosen}] with rows of the sweep, the row of the optimum, and the clock chosen.
 */
export function clockChart(id, curves, quantity, unit) {
  const data = uPlot.join(curves.map((curve) => [curve.rows.map((r) => r.clock_mhz), curve.rows.map((r) => r[quantity])]));
  const colours = curves.map((curve) => colour(`--s${curve.place}`));
  const options = {
    cursor: { points: { show: false }, drag: { x: false, y: false }, y: false },
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, high * 1.08] } },
    axes: [
      axis((u, ticks) => ticks.map((tick) => `${tick}`), { label: "MHz", labelSize: 18, labelFont: "12px system-ui", size: 34 }),
      axis((u, ticks) => ticks.map((tick) => si(tick, unit)), { size: 62 }),
    ],
    series: [{}, ...curves.map((curve, i) => ({ stroke: colours[i], width: 2.2, spanGaps: true, points: { show: false } }))],
    hooks: {
      draw: [(plot) => curves.forEach((curve, i) => mark(plot, curve, quantity, colours[i]))],
      setCursor: [(plot) => read(plot, curves, quantity, unit, byId(id.replace("curve", "readout")))],
    },
  };
  const told = curves.map((c) => `${c.name}: ${si(c.optimum[quantity], unit)} at its optimum, ${mhz(c.optimum.clock_mhz)}`);
  byId(id.replace("curve", "readout")).textContent = HINT;
  place(id, options, data, told.join("; "));
}

function mark(plot, curve, quantity, stroke) {
  const usual = curve.rows.find((row) => row.clock_mhz === row.default_clock_mhz);
  if (usual) {
    const { ctx } = plot;
    const x = plot.valToPos(usual.clock_mhz, "x", true);
    const y = plot.valToPos(usual[quantity], "y", true);
    ctx.fillStyle = colour("--soft");
    ctx.fillRect(x - devicePixelRatio, y - 7 * devicePixelRatio, 2 * devicePixelRatio, 14 * devicePixelRatio);
  }
  dot(plot, curve.optimum.clock_mhz, curve.optimum[quantity], 5, colour("--card"), stroke);
}

function read(plot, curves, quantity, unit, out) {
  if (plot.cursor.left < 0) {
    out.textContent = HINT;
    return;
  }
  const at = plot.posToVal(plot.cursor.left, "x");
  const near = (rows) => rows.reduce((a, b) => (Math.abs(b.clock_mhz - at) < Math.abs(a.clock_mhz - at) ? b : a));
  out.textContent = curves.map((c) => {
    const row = near(c.rows);
    return `${c.name} at ${mhz(row.clock_mhz)}: ${si(row[quantity], unit)}`;
  }).join(" · ");
}

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

/** Energy over time of all rows; front: those that nothing beats; mine: {full name of a GPU: place}. */
export function frontChart(id, rows, front, mine) {
  const sorted = (some) => [...some].sort((a, b) => a.time_s - b.time_s);
  const table = (some) => [sorted(some).map((r) => r.time_s), sorted(some).map((r) => r.energy_j)];
  const places = Object.entries(mine);
  const groups = [rows.filter((r) => !(r.gpu in mine)), ...places.map(([gpu]) => rows.filter((r) => r.gpu === gpu))];
  const data = uPlot.join([...groups.map(table), table(front)]);
  const points = (fill, size) => ({
    stroke: fill, width: 0, paths: () => null, points: { show: true, size, fill, stroke: fill, space: 0, width: 0 },
  });
  const seconds = (u, ticks) => ticks.map((tick) => (tick === null ? null : si(tick, "s")));
  const joules = (u, ticks) => ticks.map((tick) => (tick === null ? null : si(tick, "J")));
  const options = {
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: false, distr: 3, range: around }, y: { distr: 3, range: around } },
    axes: [
      axis(seconds, { label: "time per iteration", labelSize: 18, labelFont: "12px system-ui", size: 34, space: 60, ...logarithmic }),
      axis(joules, { size: 62, ...logarithmic }),
    ],
    series: [
      {},
      points(colour("--faint"), 3.5),
      ...places.map(([, place]) => points(colour(`--s${place}`), 6)),
      { stroke: colour("--ink"), width: 2, spanGaps: true, points: { show: false } },
    ],
    hooks: { setCursor: [(plot) => nearest(plot, rows, byId(`${id}-readout`))] },
  };
  const ends = [front[0], front[front.length - 1]].map((r) => `${r.alias} at ${mhz(r.clock_mhz)}: ${si(r.time_s, "s")}, ${si(r.energy_j, "J")}`);
  byId(`${id}-readout`).textContent = HINT;
  place(id, options, data, `Energy over time, both logarithmic. Front from ${ends.join(" to ")}`);
}

function nearest(plot, rows, out) {
  const { left, top } = plot.cursor;
  if (left < 0) {
    out.textContent = HINT;
    return;
  }
  let best = null;
  let least = 900;
  for (const row of rows) {
    const away = (plot.valToPos(row.time_s, "x") - left) ** 2 + (plot.valToPos(row.energy_j, "y") - top) ** 2;
    if (away < least) [best, least] = [row, away];
  }
  out.textContent = best ? `${best.alias} at ${mhz(best.clock_mhz)}: ${si(best.time_s, "s")}, ${si(best.power_w, "W")}, ${si(best.energy_j, "J")}` : "";
}
