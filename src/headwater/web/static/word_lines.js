// The words of two texts in two columns, lines between them. Every word has a row of one height, so a line is known by
// two numbers, whatever the width: the picture stays right on a phone, and on a slide.

import { h, svg } from './dom.js';
import * as heat from './heat.js';
import { placesFor, roundToSum, shown } from './sums.js';

const LEAST = { all: 0.05, one: 0.015 }; // of the strongest pair: a weaker one has no line
const MOST = 60; // lines
const THICK = 9; // pixels, of the strongest pair
const PARTNERS = 5; // words that are named one by one
const ROW = 10; // of a row, in the drawing's own unit

export class WordLines {
  // `act(side, number)` is called when a word is clicked; sides are a and b.
  constructor(act) {
    this.act = act;
    this.left = new Set();
    this.columns = { a: h('div', { className: 'twin-words', role: 'group', 'aria-label': 'Words of the first text' }), b: h('div', { className: 'twin-words', role: 'group', 'aria-label': 'Words of the second text' }) };
    this.drawing = svg('svg', { class: 'twin-lines', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.frame = h('div', { className: 'twin' }, h('h3', {}, 'a'), h('span'), h('h3', {}, 'b'), this.columns.a, this.drawing, this.columns.b);
    this.said = h('p', { className: 'twin-said', 'aria-live': 'polite' });
    this.element = h('div', {}, this.frame, this.said);
    this.listen();
  }

  set(found) {
    this.found = found;
    this.left.clear();
    this.lit = null;
    const rows = Math.max(found.first.words.length, found.second.words.length);
    this.strongest = Math.max(...found.matrix.map((line) => Math.max(...line.map(Math.abs))), 0);
    this.drawing.setAttribute('viewBox', `0 0 100 ${ROW * rows}`);
    this.drawing.style.setProperty('height', `calc(${rows} * var(--row))`);
    this.offsets = { a: (rows - found.first.words.length) / 2, b: (rows - found.second.words.length) / 2 };
    this.fill('a', found.first);
    this.fill('b', found.second);
    this.light(null);
  }

  clear() {
    this.found = null;
    this.left.clear();
    for (const place of [this.columns.a, this.columns.b, this.drawing, this.said]) place.replaceChildren();
  }

  fill(side, { words, prompt }) {
    const scale = Math.max(...words.map((word) => Math.abs(word.relevance)), 0);
    this.columns[side].replaceChildren(...words.map((word, i) => {
      const { kind, share } = heat.look(word.relevance, scale);
      const can = !word.special && i >= prompt;
      return h('div', {}, h('span', {
        className: `w ${kind}${can ? ' can' : ''}${word.special ? ' special' : ''}`, style: { '--o': share.toFixed(3) }, role: 'button', tabindex: i ? -1 : 0,
        'data-side': side, 'data-i': i, 'data-said': `${word.text}, ${shown(word.relevance, 3)} in all`, 'aria-pressed': can ? 'false' : undefined, 'aria-disabled': can ? undefined : 'true',
        'aria-label': `${word.text}, ${shown(word.relevance, 3)} in all`, title: word.text,
      }, word.text));
    }));
  }

  words(side) { return [...this.columns[side].querySelectorAll('.w')]; }

  can(side, i) { return Boolean(this.words(side)[i]?.classList.contains('can')); }

  // Words that are left out are struck through.
  mark() {
    for (const side of ['a', 'b']) {
      this.words(side).forEach((word, i) => {
        const left = this.left.has(side + i);
        word.classList.toggle('masked', left);
        if (word.classList.contains('can')) word.setAttribute('aria-pressed', String(left));
        word.setAttribute('aria-label', `${word.dataset.said}${left ? ', left out' : ''}`);
      });
    }
  }

  // Pointer, touch and keyboard. What is pointed at comes before what has the focus.
  listen() {
    const at = (event) => event.target.closest?.('.twin .w');
    const light = (event) => { const word = at(event); if (word) this.light(word.dataset.side, Number(word.dataset.i)); };
    this.frame.addEventListener('pointerover', light);
    this.frame.addEventListener('focusin', light);
    this.frame.addEventListener('pointerleave', () => this.rest());
    this.frame.addEventListener('focusout', (event) => { if (!this.frame.contains(event.relatedTarget)) this.light(null); });
    this.frame.addEventListener('click', (event) => { const word = at(event); if (word?.classList.contains('can')) this.act(word.dataset.side, Number(word.dataset.i)); });
    this.frame.addEventListener('keydown', (event) => this.step(event, at(event)));
  }

  rest() {
    const word = document.activeElement;
    if (this.frame.contains(word) && word.matches('.w:focus-visible')) this.light(word.dataset.side, Number(word.dataset.i));
    else this.light(null);
  }

  step(event, word) {
    if (!word) return;
    const { side } = word.dataset;
    const here = Number(word.dataset.i);
    const own = this.words(side);
    const move = { ArrowDown: [side, here + 1], ArrowUp: [side, here - 1], ArrowLeft: ['a', here], ArrowRight: ['b', here], Home: [side, 0], End: [side, own.length - 1] }[event.key];
    if (event.key === 'Enter' || event.key === ' ') { if (word.classList.contains('can')) this.act(side, here); } else if (event.key === 'Escape') this.light(null);
    else if (!move) return;
    else this.focus(...move);
    event.preventDefault();
  }

  focus(side, i) {
    const all = this.words(side);
    const next = Math.max(0, Math.min(i, all.length - 1));
    all.forEach((word, n) => { word.tabIndex = n === next ? 0 : -1; });
    all[next].focus();
  }

  // Lines of one word, or the strongest of all.
  light(side, i) {
    if (!this.found) return;
    this.lit = side ? [side, i] : null;
    const pairs = this.pairs(side, i);
    this.drawing.replaceChildren(...pairs.map((pair) => this.line(pair)));
    this.frame.classList.toggle('lit', Boolean(side));
    for (const one of ['a', 'b']) {
      const met = new Set(pairs.map((pair) => (one === 'a' ? pair.i : pair.j)));
      this.words(one).forEach((word, n) => {
        word.classList.toggle('now', one === side && n === i);
        word.classList.toggle('met', met.has(n));
      });
    }
    this.said.replaceChildren(...(side ? this.sum(side, i) : ['']));
  }

  // The weakest first, so that it lies below.
  pairs(side, i) {
    const least = (side ? LEAST.one : LEAST.all) * this.strongest;
    const found = this.found.matrix.flatMap((line, row) => line.map((amount, column) => ({ i: row, j: column, amount })))
      .filter((pair) => Math.abs(pair.amount) > least && (!side || (side === 'a' ? pair.i : pair.j) === i));
    return found.sort((one, other) => Math.abs(one.amount) - Math.abs(other.amount)).slice(-MOST);
  }

  line({ i, j, amount }) {
    const [y0, y1] = [ROW * (this.offsets.a + i + 0.5), ROW * (this.offsets.b + j + 0.5)];
    const share = Math.abs(amount) / this.strongest;
    return svg('path', {
      d: `M0 ${y0} C45 ${y0} 55 ${y1} 100 ${y1}`, class: amount > 0 ? 'add' : 'take', 'vector-effect': 'non-scaling-stroke', 'data-pair': `${i},${j}`,
      'stroke-width': (0.6 + (THICK - 0.6) * share).toFixed(2), 'stroke-opacity': (0.4 + 0.5 * share).toFixed(2), 'stroke-dasharray': amount > 0 ? null : '5 4',
    });
  }

  // What a word does, written out: with the words of the other text, with its biases and constants, in all.
  sum(side, i) {
    const [own, other] = side === 'a' ? [this.found.first, this.found.second] : [this.found.second, this.found.first];
    const amounts = other.words.map((_, n) => (side === 'a' ? this.found.matrix[i][n] : this.found.matrix[n][i]));
    const order = amounts.map((_, n) => n).sort((one, two) => Math.abs(amounts[two]) - Math.abs(amounts[one]));
    const named = order.slice(0, PARTNERS);
    const rest = order.slice(PARTNERS);
    const parts = [...named.map((n) => [quoted(other.words[n].text), amounts[n]]),
      ...(rest.length ? [[`${rest.length} other words`, rest.reduce((all, n) => all + amounts[n], 0)]] : []),
      [`biases of ${side === 'a' ? 'b' : 'a'}`, own.rest[i]]];
    const total = own.words[i].relevance;
    const places = Math.max(3, placesFor(total));
    const seen = roundToSum(parts.map(([, amount]) => amount), total, places);
    return [h('b', {}, quoted(own.words[i].text)), ' with ', ...parts.map(([name], n) => [n ? ' + ' : '', h('i', {}, name), ` ${shown(seen[n], places)}`]).flat(), ' = ', h('b', {}, shown(total, places)), ' in all'];
  }
}

// A mark such as a comma stands in quotation marks, or it would be taken for one of the sentence.
const quoted = (text) => (/[\p{L}\p{N}]/u.test(text) ? text : `“${text}”`);
