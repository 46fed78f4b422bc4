// What people type into fields: numbers, durations, sizes and prices, checked before anything is asked.
import { Refusal } from "./api.js";
import { byId } from "./format.js";

/** Text of a field; nothing where the field is not shown. */
export function typed(id) {
  const field = byId(id);
  return field.closest("[hidden]") ? "" : field.value.trim();
}

/** A positive number; null for an empty field. */
export function positive(id, title, example) {
  const text = typed(id);
  if (!text) return null;
  if (Number(text) > 0 && Number.isFinite(Number(text))) return Number(text);
  throw new Refusal({ field: id, title, given: text, allowed: `a number above 0, such as ${example}; nothing for none` });
}

/** Seconds of a field in milliseconds; null for an empty field. */
export function milliseconds(id, title) {
  const value = positive(id, title, "20");
  return value === null ? null : value / 1000;
}

/** A whole number from 1. */
export function whole(id, title) {
  const text = typed(id);
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new Refusal({ field: id, title, given: text || null, allowed: "1, 2, 3, ..." });
}

/** A whole number from 1; null for an empty field. */
export const wholeOrNone = (id, title) => (typed(id) ? whole(id, title) : null);

/** Tokens of requests: a whole number, or a mean and a standard deviation, such as "650, 610". */
export function lengths(id, title) {
  const text = typed(id);
  const parts = text.split(/[,\s]+/).filter(Boolean);
  if (parts.length === 1) return whole(id, title);
  if (parts.length === 2 && parts.every((part) => /^\d{1,9}(\.\d+)?$/.test(part)) && Number(parts[0]) >= 1) return parts.map(Number);
  throw new Refusal({ field: id, title, given: text || null, allowed: "1, 2, 3, ...; or mean and standard deviation, such as 650, 610" });
}

/** "1, 8, 32" as a list; null for an empty field. */
export function wholes(id, title) {
  const text = typed(id);
  if (!text) return null;
  const parts = text.split(/[,\s]+/).filter(Boolean);
  if (parts.every((part) => /^[1-9]\d{0,8}$/.test(part))) return parts.map(Number);
  throw new Refusal({ field: id, title, given: text, allowed: "numbers from 1 up, such as 1, 8, 32; nothing for the batch of the input shape" });
}

/** A price for all GPUs, or prices by GPU: "1.20", or "A30 = 0.5, H100 SXM = 2.5". */
export function prices(id) {
  const text = typed(id);
  const price = (part) => (part.trim() && Number(part) >= 0 && Number.isFinite(Number(part)) ? Number(part) : NaN);
  if (!Number.isNaN(price(text))) return price(text);
  const pairs = text.split(",").map((part) => part.split("=")).map(([name, value]) => [name.trim(), price(value ?? "")]);
  if (text && pairs.every(([name, value]) => name && !Number.isNaN(value))) return Object.fromEntries(pairs);
  throw new Refusal({ field: id, title: "this is no price", given: text || null, allowed: "a number, in any currency, such as 1.20; or one for each GPU: A30 = 0.5, H100 SXM = 2.5" });
}

/** Grams of CO2 per kWh, or the name or code of a country. */
export function grid(id) {
  const text = typed(id);
  if (text) return Number.isFinite(Number(text)) ? Number(text) : text;
  throw new Refusal({ field: id, title: "the grid is missing", allowed: "a country such as DE, or grams of CO2 per kWh" });
}

/** Only the entries that are not null. */
export const given = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null));
