// The ledger as bars that add up: every bar begins where the one above it ended, and the last is the score.

import { h, plural, short } from './dom.js';
import { counted } from './layers.js';
import { placesFor, roundToSum, shown, sumLine } from './sums.js';
import { knows, term } from './terms.js';

const SHOWN = 40; // words that are opened one by one; the others come as one line

// `inputs` are {name, amount}: the words, patches or atoms that the first line is made of. What is opened is drawn in,
// and the scale made wide enough for it.
export function ledger(book, inputs, unit) {
  const element = h('div', { className: 'ledger' });
  const open = new Set();
  const draw = (touched) => {
    element.replaceChildren(...drawn(book, inputs, unit, open, (path) => {
      if (open.has(path)) open.delete(path); else open.add(path);
      draw(path);
    }));
    if (touched) element.querySelector(`[data-line="${CSS.escape(touched)}"]`)?.focus();
  };
  draw();
  return element;
}

function drawn(book, inputs, unit, open, toggle) {
  const sections = [
    { name: `inputs`, note: `all ${plural(unit)} together`, amount: book.inputs, parts: largest(inputs, unit) },
    folded('biases', book.biases),
    folded('constants', book.constants),
    folded('cut off', book.cut_off, 'depends on the input, but the model cuts it off'),
    folded('held', book.held, 'parameters weighed by what the rules hold constant'),
    book.readout ? { name: 'readout', note: 'what a probability adds to its logits', amount: book.readout } : null,
    { name: 'unaccounted', note: 'lost or invented on the way', amount: book.unaccounted, loud: !book.closed },
  ].filter(Boolean);
  const scale = { ...extent(sections, book.score, open), places: placesFor(book.score) };
  settle(sections, book.score, scale.places);
  const body = h('div', { className: 'bars', role: 'table', 'aria-label': 'Ledger: every line and its amount' });
  let start = 0;
  for (const section of sections) {
    body.append(...rows(section, start, scale, open, toggle, ''));
    start += section.amount;
  }
  body.append(line({ name: 'score', amount: book.score, seen: book.score, total: true }, 0, scale));
  return [body,
    h('p', { className: book.closed ? 'verdict closed' : 'verdict open' },
      h('b', {}, book.closed ? 'It adds up: ' : 'It does not add up: '), sumLine(book.sum), '. ', h('small', {}, book.verdict))];
}

// What is shown of every line: lines add up to the score, and what is inside a line to that line.
function settle(parts, total, places) {
  const seen = roundToSum(parts.map((part) => part.amount), total, places);
  parts.forEach((part, i) => {
    part.seen = seen[i];
    if (part.parts?.length) settle(part.parts, seen[i], places);
  });
}

function folded(name, layers, note) {
  if (!layers.length) return null;
  const amount = layers.reduce((sum, layer) => sum + layer.amount, 0);
  const parts = layers.map((layer) => ({
    name: short(layer.name),
    title: layer.name,
    amount: layer.amount,
    parts: layer.lines.length > 1 ? layer.lines.map((line) => ({ ...line, name: within(line.name, layer.name), title: line.name })) : undefined,
  }));
  return { name, note: note ?? named(layers.map((layer) => layer.name)), amount, parts };
}

// What a line is made of: kinds that have a meaning, and products of two texts, by name; layers by their number.
const named = (names) => (names.length > 1 && !names.every((name) => knows(name) || name.includes(' × ')) ? counted(names) : names.map(short).join(', '));

// A parameter's name inside its layer.
const within = (name, layer) => (name.startsWith(`${layer}.`) ? name.slice(layer.length + 1) : name);

function largest(inputs, unit) {
  if (inputs.length <= SHOWN) return inputs;
  const kept = new Set(inputs.map((_, i) => i).sort((a, b) => Math.abs(inputs[b].amount) - Math.abs(inputs[a].amount))
    .slice(0, SHOWN));
  const rest = inputs.filter((_, i) => !kept.has(i));
  const amount = rest.reduce((sum, one) => sum + one.amount, 0);
  return [...inputs.filter((_, i) => kept.has(i)), { name: `${rest.length} other ${plural(unit)}`, amount }];
}

// From the smallest to the largest sum on the way, those inside opened lines too.
function extent(sections, score, open) {
  let [low, high] = [Math.min(0, score), Math.max(0, score)];
  const walk = (start, parts, inside) => {
    let at = start;
    for (const part of parts) {
      const path = `${inside}/${part.name}`;
      if (part.parts && open.has(path)) walk(at, part.parts, path);
      at += part.amount;
      low = Math.min(low, at);
      high = Math.max(high, at);
    }
  };
  walk(0, sections, '');
  return { low, span: high - low || 1 };
}

function rows(one, start, scale, open, toggle, inside, depth = 0) {
  const path = `${inside}/${one.name}`;
  const made = [line(one, start, scale, depth, path, open, toggle)];
  if (one.parts?.length && open.has(path)) {
    let at = start;
    for (const part of one.parts) {
      made.push(...rows(part, at, scale, open, toggle, path, depth + 1));
      at += part.amount;
    }
  }
  return made;
}

function line(one, start, scale, depth = 0, path = '', open = new Set(), toggle = () => {}) {
  const end = start + one.amount;
  const place = (value) => ((value - scale.low) / scale.span) * 100;
  const kind = one.total ? 'total' : one.amount >= 0 ? 'add' : 'take';
  const name = one.parts?.length
    ? h('button', {
      type: 'button', className: 'opens', 'aria-expanded': String(open.has(path)), 'data-line': path, onclick: () => toggle(path),
    }, one.name)
    : h('span', {}, one.name);
  if (one.title) name.title = one.title;
  return h('div', { className: `line depth${depth}${one.total ? ' score' : ''}`, role: 'row' },
    h('span', { className: 'name', role: 'rowheader' }, name, depth === 0 || one.title ? meant(one.name) : null, one.note ? h('small', {}, one.note) : null),
    h('span', { className: 'track', role: 'cell', 'aria-hidden': 'true' },
      h('i', { className: 'zero', style: { left: `${place(0)}%` } }),
      h('i', {
        className: `bar ${kind}${one.loud ? ' loud' : ''}`,
        style: { left: `${place(Math.min(start, end))}%`, width: `${Math.abs(place(end) - place(start))}%` },
      })),
    h('span', { className: 'amount', role: 'cell' }, shown(one.seen, scale.places)));
}

// What a line is, beside its name: of a parameter's or a module's name there is nothing to say.
const meant = (name) => {
  const kind = name.split(': ').at(-1);
  return knows(kind) ? [' ', term(kind, '?')] : null;
};
