// A quantity over the clock, drawn by uPlot.
import { byId, mhz, si } from "./format.js";
import { axis, colour, dot, place } from "./plots.js";

const HINT = "Point at it, tap, or use the arrow keys to read it off.";

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
