// Numbers and times as pages show them.

export const count = (number) => (number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-US"));
export const rate = (number) => {
  if (number === null || number === undefined) return "–";
  return Math.abs(number) >= 100 ? count(number) : String(Number(number.toPrecision(3)));
};
export const percent = (share) => {
  if (share === null || share === undefined) return "–";
  const hundredths = 100 * share;
  return `${hundredths > 0 && hundredths < 10 ? hundredths.toFixed(1) : Math.floor(hundredths)} %`;
};
export const money = (dollars) => (dollars === null || dollars === undefined ? "–" : `$${dollars >= 1 ? dollars.toFixed(2) : Number(dollars.toPrecision(3))}`);
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
  const error = each.standard_error === null ? "" : ` ± ${Number(each.standard_error.toPrecision(2))}`;
  return `${Number(each.mean.toPrecision(4))}${error}`;
};
