// Generated text as a heatmap: a row for every output token, a column for everything that stands before it.

import { h, signed, svg } from './dom.js';
import { look } from './heat.js';

const [CELL, SIDE, LETTER] = [20, 104, 5.6]; // LETTER: what a letter of a slanted name takes of the height
const MOST = 80; // columns that are drawn: those with most relevance, in their order
const LONG = 13; // characters of a name
const FAINT = 0.05; // of full colour: what is fainter has no sign

const short = (text) => { const said = text.trim() || '␣'; return said.length > LONG ? `${said.slice(0, LONG - 1)}…` : said; };

// `choose(number)` is what a click on a row does; `same` puts all rows on one scale.
export function matrix(found, { same = false, choose, chosen }) {
  const seen = Math.max(...found.rows.map((row) => row.relevance.length), 0);
  const all = found.pieces.map((_, i) => i).filter((i) => i < seen && !found.pieces[i].aside);
  const size = (i) => found.rows.reduce((sum, row) => sum + Math.abs(row.relevance[i] ?? 0), 0);
  const columns = [...all].sort((a, b) => size(b) - size(a)).slice(0, MOST).sort((a, b) => a - b);
  const whole = Math.max(...found.rows.flatMap((row) => row.relevance.map(Math.abs)), 0);
  const top = Math.ceil(18 + LETTER * Math.max(...columns.map((i) => short(found.pieces[i].text).length), 0));
  const [width, height] = [SIDE + CELL * columns.length + 30, top + CELL * found.rows.length + 4];
  const drawn = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', className: 'matrix', 'aria-label': `Heatmap: ${found.rows.length} output ${found.unit}s by ${columns.length} ${found.unit}s before them` },
    columns.map((i, k) => svg('text', { transform: `translate(${SIDE + CELL * k + 14} ${top - 6}) rotate(-55)` }, short(found.pieces[i].text))));
  found.rows.forEach((row, number) => {
    const y = top + CELL * number;
    const scale = same ? whole : Math.max(...row.relevance.map(Math.abs), 0);
    drawn.append(svg('g', { className: number === chosen ? 'line chosen' : 'line', onclick: () => choose(number) },
      svg('text', { x: SIDE - 8, y: y + 14, 'text-anchor': 'end' }, short(row.text)),
      columns.map((i, k) => (i < row.relevance.length ? cell(SIDE + CELL * k, y, row.relevance[i], scale, `${found.pieces[i].text.trim() || '␣'} for ${row.text}`) : null))));
  });
  return { drawn, left: all.length - columns.length };
}

function cell(x, y, value, scale, name) {
  const { kind, share } = look(value, scale);
  const box = { x, y, width: CELL - 1, height: CELL - 1, rx: 2 };
  return svg('g', {}, svg('title', {}, `${name}: ${signed(value)}`), svg('rect', { ...box, className: 'empty' }),
    svg('rect', { ...box, className: kind, style: { '--o': share.toFixed(3) } }),
    kind === 'take' && share > FAINT ? svg('path', { d: `M${x + 6} ${y + CELL / 2 - 0.5}h7`, className: 'minus' }) : null);
}

// The card that holds it, with the switch of its scale.
export class MatrixCard {
  constructor(choose) {
    this.choose = choose;
    this.same = h('input', { type: 'checkbox', onchange: () => this.draw() });
    this.body = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Heatmap' });
    this.note = h('p', { className: 'soft hint' });
    this.element = h('section', { className: 'card' },
      h('div', { className: 'headed' }, h('h2', {}, 'Heatmap'), h('label', { className: 'check' }, this.same, h('span', {}, 'one scale for all rows'))),
      this.body, this.note);
  }

  show(found, chosen) {
    Object.assign(this, { found, chosen });
    this.draw();
  }

  draw() {
    if (!this.found) return;
    const { drawn, left } = matrix(this.found, { same: this.same.checked, choose: this.choose, chosen: this.chosen });
    this.body.replaceChildren(drawn);
    this.note.textContent = `A row for every ${this.found.unit} of the output, a column for what stands before it; a line in a cell says that it takes away.${left ? ` ${left} columns with less relevance are left out.` : ''}`;
  }
}
