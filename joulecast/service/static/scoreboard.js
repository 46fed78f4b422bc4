// Published runs beside predictions, as the scoreboard of the benchmarks has them.
import { ask } from "./api.js";
import { tableHead } from "./choices.js";
import { byId, h, number, si } from "./format.js";

// What is asked for most stands first: a phone shows the first columns.
const TITLES = ["task and GPU", "time", "power", "energy", "in the 90 % interval", "runs", "measured", "predicted", "source", "commit", "time at first"];
const percent = (ratio) => (100 * ratio).toFixed(0);
const signed = (ratio) => (ratio < 0 ? percent(ratio).replace("-", "\u2212") : `+${percent(ratio)}`);

/** Bias and mean absolute error of a quantity, which not every source publishes. */
const errors = (found) => number(found ? `${signed(found.bias)}, ${percent(found.error)} %` : "");

function line(row) {
  return h("tr", {},
    h("th", { scope: "row" }, row.task, h("br"), h("span", { class: "help" }, row.gpu)), ...[row.time, row.power, row.energy].map(errors),
    number(row.of ? `${row.inside} of ${row.of}` : ""), number(String(row.runs)),
    ...[row.measured_s, row.predicted_s].map((seconds) => number(seconds === null ? "" : si(seconds, "s"))),
    number(row.source), number(h("code", {}, row.commit)),
    number([row.first.time ? `${percent(row.first.time.error)} % ` : "", h("code", {}, row.first.commit)]));
}

function show(rows) {
  const words = byId("filter").value.toLowerCase().split(/\s+/);
  const shown = rows.filter((row) => words.every((word) => `${row.source} ${row.gpu} ${row.task}`.toLowerCase().includes(word)));
  byId("count").textContent = `${shown.length} of ${rows.length} rows`;
  byId("scores").replaceChildren(tableHead(TITLES, 1), h("tbody", {}, shown.map(line)));
}

try {
  const { rows } = await ask("scoreboard");
  byId("filter").addEventListener("input", () => show(rows));
  show(rows);
} catch (error) {
  byId("problem").textContent = error.message;
}
byId("results").setAttribute("aria-busy", "false");
