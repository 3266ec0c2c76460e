// Numbers and times as pages show them.

export const count = (number) => (number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-US"));
export const rate = (number) => {
  if (number === null || number === undefined) return "–";
  return Math.abs(number) >= 100 ? count(number) : String(Number(number.toPrecision(3)));
};
// figure, percent and money round as fairlane/core/figures.py does.
const pointed = (number, places) => Number(number.toFixed(Math.min(100, places)));
const places = (size, digits) => (size ? Math.max(0, digits - 1 - Math.floor(Math.log10(size))) : 0);
export const figure = (number, digits = 4) => {
  const size = Math.abs(number);
  if (size && (size < 1e-4 || size >= 1e15)) return String(Number(number.toPrecision(digits)));
  const below = size < 1 && pointed(size, digits) === 1 ? Math.sign(number) * (1 - 10 ** -digits) : number;
  return pointed(below, places(size, digits)).toLocaleString("en-US", { maximumFractionDigits: 20 });
};
export const percent = (share) => {
  if (share === null || share === undefined) return "–";
  const digits = share > 0 && share < 0.0995 ? 1 : 0;
  const shown = pointed(100 * share, digits);
  if (shown === 0 && share > 0) return "<0.1 %";
  return `${share < 1 && shown >= 100 ? 99 : shown.toFixed(digits)} %`;
};
export const money = (dollars) => {
  if (dollars === null || dollars === undefined) return "–";
  const shown = pointed(dollars, Math.max(2, places(Math.abs(dollars), 3)));
  return `$${shown.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 20 })}`;
};
export function span(milliseconds) {
  for (const [size, unit] of [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]]) {
    if (milliseconds >= size) return `${Math.floor(milliseconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.round(milliseconds))} ms`;
}
export const ago = (at, now) => (at ? `${span(now - at)} ago` : "–");
export const until = (at, now) => (at ? (at - now < 1000 ? "now" : `in ${span(at - now)}`) : "");
export const clock = (at) => (at ? new Date(at).toLocaleTimeString("en-GB") : "–");
export const score = (each) => {
  if (each.mean === null) return "–";
  return figure(each.mean) + (each.standard_error === null ? "" : ` ± ${figure(each.standard_error, 2)}`);
};
