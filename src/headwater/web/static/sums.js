// Numbers that add up as they are shown: rounded, and their shown sum is the shown total (viz/sums.py has the proof).

import { h } from './dom.js';
import { term } from './terms.js';

const GROUPS = /(attention offset|attention sink|special tokens|score of the baseline|biases|constants|cut off|held|readout|unaccounted)/;

export const placesFor = (scale) => {
  const size = Math.abs(scale);
  return size === 0 || !Number.isFinite(size) ? 2 : Math.min(6, Math.max(2, 1 - Math.floor(Math.log10(size))));
};

export function roundToSum(parts, total, places) {
  const unit = 10 ** -places;
  const sum = parts.reduce((all, part) => all + part, 0);
  const whole = parts.map((part) => Math.round(part / unit));
  if (!Number.isFinite(sum + total) || Math.abs(sum - total) > Math.max(unit, 1e-6 * Math.abs(total))) return whole.map((n) => n * unit);
  const missing = Math.round(total / unit) - whole.reduce((all, n) => all + n, 0);
  const step = missing > 0 ? 1 : -1;
  parts.map((part, i) => [step * (whole[i] - part / unit), i]).sort((a, b) => a[0] - b[0])
    .slice(0, Math.abs(missing)).forEach(([, i]) => { whole[i] += step; });
  return whole.map((n) => n * unit);
}

// A number as it was rounded, with its sign and a true minus.
export function shown(value, places) {
  const text = Math.abs(value).toFixed(places);
  return Number(text) === 0 ? text : (value < 0 ? '−' : '+') + text;
}

const PARTS = new Set(['inputs', 'biases', 'constants', 'cut_off', 'held', 'readout', 'unaccounted']); // of the score

// The parts of a row's score by their place in it, rounded such that they add up to the score as they are shown.
export function partsOf(names, row) {
  const score = row[names.indexOf('score')];
  const at = names.map((_, i) => i).filter((i) => PARTS.has(names[i]) && Number.isFinite(row[i]));
  if (!Number.isFinite(score) || !at.length) return new Map();
  const places = placesFor(score);
  const rounded = roundToSum(at.map((i) => row[i]), score, places);
  return new Map(at.map((i, n) => [i, shown(rounded[n], places)]));
}

// The inputs as the ledger's sum shows them; with other places than it has, as they are.
export const shownInputs = (book, places) => (places === placesFor(book.score) ? Number(/-?\d+\.\d+/.exec(book.sum)[0]) : book.inputs);

export const minus = (text) => text.replace(/-(?=\d)/g, '−');

// `words 4.31 + biases -1.18 = 3.13`, each name of a line with its meaning.
export function sumLine(sum) {
  return h('span', { className: 'sum' }, minus(sum).split(GROUPS).map((part) => (GROUPS.test(part) ? term(part) : part)));
}
