// What all parts of the page make and write: elements, values with their units, scores, rates, names.
//
// Whatever somebody wrote goes into the document as text nodes and attribute values only; nothing here parses HTML.
"use strict";
const write = (() => {
  const el = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };
  const thousands = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  const TIMES = { s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9 }; // units of time, in seconds
  const num = (value) => (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : thousands(value));
  const amount = (value, unit) => `${num(value)} ${unit}`;
  const times = (value) => (value === null ? "–" : `${num(value)}×`);
  const percent = (value) => `${value >= 0.001 ? (100 * value).toFixed(1) : Number((100 * value).toPrecision(2))} %`;
  const signed = (value) => `${value < 0 ? "−" : "+"}${percent(Math.abs(value))}`;
  const seconds = (value) =>
    value < 1e-3
      ? `${Number((value * 1e6).toPrecision(4))} µs`
      : value < 1
        ? `${Number((value * 1e3).toPrecision(4))} ms`
        : `${Number(value.toPrecision(4))} s`;
  const scored = (value, unit) => (unit === "s" ? seconds(value) : `${Number(value.toPrecision(6))} ${unit}`);
  const rate = (value, unit) => {
    const [letter, scale] = [
      ["T", 1e12],
      ["G", 1e9],
      ["M", 1e6],
      ["k", 1e3],
    ].find(([, least]) => value >= least) ?? ["", 1];
    return `${Number((value / scale).toPrecision(3))} ${letter}${unit}`;
  };
  const day = (date) => date.slice(0, 16).replace("T", " ");
  const count = (number, what, many = `${what}s`) => `${number} ${number === 1 ? what : many}`;
  const name = (entry) => `${entry.author}, ${entry.file}`;

  return { el, TIMES, num, amount, times, percent, signed, seconds, scored, rate, day, count, name };
})();
