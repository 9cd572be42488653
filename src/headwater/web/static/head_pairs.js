// One head between words: lines from the word that reads to the words that are read, by attention or by relevance.

import { h, percent, signed, svg } from './dom.js';
import { look } from './heat.js';

const [ROW, TOP, GAP] = [24, 8, 150]; // height of a word, room above, room for the lines
const MOST = 48; // words between which lines are drawn
const FAINT = 0.04; // of the strongest line: what is fainter is not drawn
const LONG = 14; // characters of a word

const short = (text) => (text.length > LONG ? `${text.slice(0, LONG - 1)}…` : text);

// `values[query][key]`; `strength` gives a line's share of full ink, `kind` its colour, `say` its number.
function drawing(cells, values, chosen, name, { scale, say }) {
  const count = cells.length;
  const y = (i) => TOP + ROW * i + ROW / 2;
  const lines = values.flatMap((row, q) => (chosen === null || chosen === q ? row.map((value, k) => ({ q, k, value, ...look(value, scale) })) : []))
    .filter(({ share }) => share > FAINT).sort((a, b) => a.share - b.share);
  const height = TOP * 2 + ROW * count;
  const drawn = svg('svg', { viewBox: `0 0 ${GAP + 220} ${height}`, className: 'pair-lines', role: 'img', 'aria-label': `${name}: ${lines.length} lines between words` },
    lines.map(({ q, k, value, kind, share }) => svg('path', { d: `M112 ${y(q)}C${112 + GAP / 2} ${y(q)} ${108 + GAP / 2} ${y(k)} ${GAP + 108} ${y(k)}`, className: kind, 'stroke-dasharray': kind === 'take' ? '5 3' : null, style: { '--o': share.toFixed(3) } },
      svg('title', {}, `${cells[q].text} reads ${cells[k].text}: ${say(value)}`))),
    cells.map((cell, i) => [
      svg('text', { x: 106, y: y(i) + 4, 'text-anchor': 'end', className: chosen === i ? 'now' : '' }, short(cell.text)),
      svg('text', { x: GAP + 114, y: y(i) + 4 }, short(cell.text))]));
  return h('figure', { className: 'pairs' }, h('figcaption', {}, h('b', {}, name)), drawn);
}

// Both drawings beside each other, and the words that can be chosen: one of them shows its own lines alone.
export class PairLines {
  constructor() {
    this.chosen = null;
    this.words = h('div', { className: 'words pick', role: 'group', 'aria-label': 'The word that reads' });
    this.pictures = h('div', { className: 'pair' });
    this.said = h('p', { className: 'soft hint', 'aria-live': 'polite' });
    this.element = h('div', {}, h('p', { className: 'soft hint' }, 'Choose a word to see what the head reads for it alone; choose it again for all of them.'), this.words, this.said, this.pictures);
    this.words.addEventListener('click', (event) => { const at = event.target.closest?.('.w'); if (at) this.choose(Number(at.dataset.i)); });
    this.words.addEventListener('keydown', (event) => this.step(event));
  }

  show(cells, found) {
    Object.assign(this, { cells, found, chosen: null });
    this.words.replaceChildren(...cells.flatMap((cell, i) => [cell.gap && i ? ' ' : '', h('span', { className: `w can${cell.word === null ? ' special' : ''}`, role: 'button', tabindex: i ? -1 : 0, 'aria-pressed': 'false', 'data-i': i }, cell.text)]));
    this.draw();
  }

  choose(i) {
    this.chosen = this.chosen === i ? null : i;
    [...this.words.querySelectorAll('.w')].forEach((word, n) => { word.setAttribute('aria-pressed', String(n === this.chosen)); word.classList.toggle('now', n === this.chosen); });
    this.draw();
  }

  step(event) {
    const all = [...this.words.querySelectorAll('.w')];
    const here = all.indexOf(event.target);
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = event.key === 'Home' ? 0 : event.key === 'End' ? all.length - 1 : here + (move ?? 0);
    if (here < 0) return;
    if (event.key === 'Enter' || event.key === ' ') this.choose(here);
    else if (next !== here && all[next]) { all.forEach((one, i) => { one.tabIndex = i === next ? 0 : -1; }); all[next].focus(); } else if (move === undefined) return;
    event.preventDefault();
  }

  draw() {
    const { attention, relevance } = this.found;
    const largest = Math.max(...relevance.flat().map(Math.abs), 0);
    this.said.textContent = this.chosen === null ? '' : this.sentence();
    if (this.cells.length > MOST && this.chosen === null) {
      this.pictures.replaceChildren(h('p', { className: 'soft' }, `Lines between more than ${MOST} words cannot be told apart: choose a word.`));
      return;
    }
    this.pictures.replaceChildren(
      drawing(this.cells, attention, this.chosen, 'Attention', { scale: 1, say: percent }),
      drawing(this.cells, relevance, this.chosen, 'Relevance', { scale: largest, say: (value) => signed(value, largest) }));
  }

  sentence() {
    const largest = (values, size) => values.map((value, k) => [size(value), k]).sort((a, b) => b[0] - a[0])[0][1];
    const [attended, relevant] = [this.found.attention[this.chosen], this.found.relevance[this.chosen]];
    const [a, r] = [largest(attended, (v) => v), largest(relevant, Math.abs)];
    return `${this.cells[this.chosen].text} attends most to ${this.cells[a].text} (${percent(attended[a])}); most relevance comes from ${this.cells[r].text} (${signed(relevant[r])}).`;
  }
}
