// Quantities as the library prints them, elements without innerHTML, and what people type.
import { Refusal } from "./api.js";

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""],
  [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];

/** Three digits, as Python's :.3g writes them. */
function digits(value) {
  const text = Number(value.toPrecision(3));
  return String(text);
}

/** A quantity with three digits and an SI prefix, such as "21.4 ms": what joulecast.units.si gives. */
export function si(value, unit) {
  if (value === null || value === undefined) return "-";
  for (const [factor, prefix] of PREFIXES) {
    if (Math.abs(value) >= factor * 0.9995) {
      const scaled = value / factor;
      return `${Math.abs(scaled) < 999.5 ? digits(scaled) : scaled.toFixed(0)} ${prefix}${unit}`;
    }
  }
  return value ? `${value.toPrecision(3)} ${unit}` : `0 ${unit}`;
}

/** A time of seconds to years in the unit that people say, as joulecast.units.duration. */
export function duration(seconds) {
  const [each, unit] = [[86400, "days"], [3600, "h"], [60, "min"]].find(([each]) => seconds >= 2 * each) ?? [];
  return each ? `${digits(seconds / each)} ${unit}` : si(seconds, "s");
}

export const mhz = (value) => `${Number(value.toPrecision(6))} MHz`;

/** An element with attributes, properties that begin with "on", variables that begin with "--", and children. */
export function h(tag, attributes = {}, ...children) {
  const space = SVG.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const element = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
/** The cell of a table that holds a number. */
export const number = (text) => h("td", { class: "number" }, text);

const SVG = new Set(["svg", "g", "rect", "text", "title"]);

export const byId = (id) => document.getElementById(id);
/** Several GPUs as the service names them, and as the page writes them. */
export const boards = (gpu, count) => (count > 1 ? `${count}x ${gpu}` : gpu);
export const written = (gpu, count) => (count > 1 ? `${count} × ${gpu}` : gpu);
export const series = (place) => `var(--s${place})`;

/** "32 x 3 x 224 x 224", "32,3,224,224", "[32, 3]" or "input_ids 8 x 128, mask 8 x 128" as JSON. */
export function parseShape(text) {
  const bare = text.trim();
  if (!bare) return null;
  if (/^[[{]/.test(bare)) return parseJson(bare, "the input shape is no JSON", "such as [32, 3, 224, 224]");
  if (/[a-z_]\w*\s*[ =:]/i.test(bare) && /[a-z_]{2,}/i.test(bare)) {
    const parts = bare.split(/,(?=\s*[a-z_]{2,})/i).map((part) => part.trim().match(/^([a-z_]\w*)\s*[ =:]\s*(.+)$/i));
    if (parts.every(Boolean)) return Object.fromEntries(parts.map(([, name, shape]) => [name, sizes(shape)]));
  }
  return sizes(bare);
}
function sizes(text) {
  const parts = text.split(/[x×,\s]+/i).filter(Boolean);
  if (parts.length && parts.every((part) => /^[1-9]\d*$/.test(part))) return parts.map(Number);
  throw new Refusal({
    title: "this is not an input shape", given: text,
    allowed: "sizes from 1 up, such as 32 x 3 x 224 x 224; of several inputs by name: input_ids 8 x 128, attention_mask 8 x 128",
  });
}

/** JSON that somebody typed. */
export function parseJson(text, title, allowed) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Refusal({ title, given: error.message, allowed });
  }
}

export function shapeText(shape) {
  if (!shape) return "";
  if (!Array.isArray(shape)) return Object.entries(shape).map(([name, item]) => `${name} ${item.join(" x ")}`).join(", ");
  return Array.isArray(shape[0]) ? shape.map((item) => item.join(" x ")).join(", ") : shape.join(" x ");
}
