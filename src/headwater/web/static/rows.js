// Rows of a result: sorted, searched, their texts in colour; of two runs of the same rows, side by side.

import { get } from './api.js';
import { chips } from './conditions.js';
import { debounced, h, signed } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { state } from './state.js';
import { partsOf } from './sums.js';

// A text that can be read comes before its numbers.
function textsFirst(found) {
  const rank = (name) => (name === 'row_id' || name === 'row' ? 0 : name === 'text' ? 1 : 2);
  const order = found.columns.map((_, i) => i).sort((a, b) => rank(found.columns[a].name) - rank(found.columns[b].name));
  return { ...found, columns: order.map((i) => found.columns[i]), rows: found.rows.map((row) => order.map((i) => row[i])) };
}

const SHARES = new Set(['relevance moved', 'score difference']); // never below 0
export const COUNT = 50; // rows of a page

export class RowsPart {
  constructor(view) {
    this.view = view;
    this.body = view.body; // its own: a late answer of a part that was left draws nothing on the next
    this.start = 0;
  }

  get coloured() { return this.view.kind === 'run'; }

  get beside() { return this.others().some((one) => one.id === state.get('beside')) ? state.get('beside') : ''; }

  others() {
    return this.coloured ? this.view.list.filter((one) => one.kind === 'run' && one.id !== this.view.choice.value) : [];
  }

  async show() {
    const again = () => { this.start = 0; this.page(); };
    const search = h('input', { type: 'search', id: 'find', maxlength: 200, placeholder: 'words that a text has' });
    search.value = state.get('find');
    search.addEventListener('input', debounced(250, () => { state.set({ find: search.value }); again(); }));
    this.within = h('select', { id: 'within', onchange: () => { state.set({ within: this.within.value }); again(); } });
    const beside = h('select', { id: 'beside', onchange: () => { state.set({ beside: beside.value, sort: '', down: '' }); again(); } },
      h('option', { value: '' }, 'no other run'), this.others().map((one) => h('option', { value: one.id }, one.name)));
    beside.value = this.beside;
    this.chips = h('div');
    this.table = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Rows' });
    this.pager = h('div', { className: 'pager' });
    this.detail = h('div', { 'aria-live': 'polite' });
    this.body.replaceChildren(
      h('div', { className: 'asked' }, h('label', { for: 'find' }, 'Search the rows', search), h('label', { for: 'within' }, 'in', this.within),
        this.others().length ? h('label', { for: 'beside' }, 'side by side with', beside) : null),
      this.chips, this.detail, this.table, this.pager, this.coloured ? heat.key() : '');
    await this.read();
  }

  // Another page of the rows, or others; what fails is said here, where nobody waits for it.
  async page() {
    const reading = this.read();
    const { asked } = this;
    try {
      await reading;
    } catch (error) {
      if (asked === this.asked) this.view.status.fail(error.message);
    }
  }

  async read() {
    const asked = (this.asked = {});
    const beside = this.beside ? `&beside=${encodeURIComponent(this.beside)}` : '';
    const found = await get(`${this.view.path}/rows?${this.view.query()}${beside}`);
    if (asked === this.asked) await this.draw(found);
  }

  async draw(found) {
    this.view.status.say('');
    this.columns = found.columns;
    found = textsFirst(found);
    this.chips.replaceChildren(chips(() => { this.start = 0; this.page(); }) ?? '');
    this.choices(found.columns);
    const whole = found.columns.map((_, i) => found.rows.every((row) => row[i] === null || Number.isInteger(row[i])));
    const id = found.columns.findIndex((column) => column.name === 'row_id');
    this.texts = new Map();
    const names = found.columns.map((column) => column.name);
    const lines = found.rows.map((row) => {
      const parts = this.coloured ? partsOf(names, row) : new Map();
      return h('tr', {}, row.map((value, i) => (parts.has(i) ? h('td', { 'data-name': found.columns[i].name }, parts.get(i)) : this.cell(found.columns[i], value, whole[i], i === id, row[id]))));
    });
    this.table.replaceChildren(h('table', { className: 'numbers rows-table' }, h('thead', {}, h('tr', {}, found.columns.map((column) => this.head(column)))), h('tbody', {}, lines)));
    this.turn(found);
    if (this.coloured && id >= 0 && found.rows.length) await this.colour(found.rows.map((row) => row[id]));
  }

  choices(columns) {
    const names = columns.filter((column) => column.text).map((column) => column.name);
    const wanted = names.includes(state.get('within')) ? state.get('within') : '';
    this.within.replaceChildren(h('option', { value: '' }, 'all texts'), ...names.map((name) => h('option', { value: name }, name)));
    this.within.value = wanted;
  }

  head(column) {
    const [sort, down] = [state.get('sort'), state.get('down') === '1'];
    const act = () => { state.set({ sort: column.name, down: column.name === sort && !down ? '1' : '' }); this.start = 0; this.page(); };
    return h('th', { scope: 'col', className: column.text ? 'text' : '', 'aria-sort': column.name === sort ? (down ? 'descending' : 'ascending') : undefined },
      h('button', { type: 'button', className: 'sorts', onclick: act }, column.name));
  }

  cell(column, value, whole, opens, id) {
    if (opens && this.coloured) return h('td', {}, h('button', { type: 'button', className: 'quiet small', 'aria-label': `Open row ${value}`, onclick: () => this.row(value) }, String(value)));
    if (column.text) {
      const shown = h('td', { className: column.name === 'text' ? 'text main-text' : 'text', 'data-name': column.name }, value ?? '');
      if (column.name === 'text') this.texts.set(id, shown);
      return shown;
    }
    return h('td', { 'data-name': column.name }, value === null ? '' : typeof value === 'boolean' ? (value ? 'yes' : 'no') : whole ? String(value) : SHARES.has(column.name) ? value.toFixed(2) : signed(value));
  }

  turn(found) {
    const last = Math.min(this.start + COUNT, found.matched);
    const here = this.start; // of the page that is shown: a second press before the next is there goes no further
    const go = (step) => () => { this.start = here + step * COUNT; this.page(); };
    this.pager.replaceChildren(
      h('span', { className: 'soft' }, found.matched ? `${this.start + 1} to ${last} of ${found.matched.toLocaleString('en')}${found.matched < found.total ? ` (${found.total.toLocaleString('en')} in all)` : ''}` : 'nothing found'),
      h('button', { type: 'button', className: 'quiet', disabled: this.start === 0, onclick: go(-1) }, 'Back'),
      h('button', { type: 'button', className: 'quiet', disabled: last >= found.matched, onclick: go(1) }, 'Next'));
  }

  // The texts come plain, and are coloured when their relevance is read: a large run is not waited for.
  async colour(ids) {
    const asked = this.asked;
    const query = new URLSearchParams(ids.map((id) => ['row', id]));
    const paths = [this.view.path, ...(this.beside ? [`/api/datasets/${encodeURIComponent(this.beside)}`] : [])];
    const all = await Promise.all(paths.map((path) => get(`${path}/coloured?${query}`)));
    if (asked !== this.asked) return;
    const names = this.beside ? this.names() : [''];
    for (const [id, cell] of this.texts) {
      const lines = all.map((found, side) => this.line(found.find((one) => one.row === id), names[side])).filter(Boolean);
      if (lines.length) cell.replaceChildren(...lines);
    }
  }

  // What tells the two runs apart, as the columns of their scores say it.
  names() {
    return this.columns.map((column) => /^score \((.*)\)$/s.exec(column.name)?.[1]).filter((name) => name !== undefined);
  }

  line(one, name) {
    if (!one) return null;
    const kept = one.cells.map((_, i) => i).filter((i) => one.cells[i].word !== null); // the opened row has special tokens, too
    const relevance = kept.map((i) => one.relevance[i]);
    const words = heat.row(kept.map((i) => one.cells[i]), relevance, one.scale, new Set(), `row ${one.row}${name ? ` by ${name}` : ''}`, true);
    words.querySelectorAll('.w').forEach((word, i) => { word.title = signed(relevance[i], one.scale); });
    return h('div', { className: 'row-text' }, name ? h('small', {}, name) : null, words);
  }

  // One row of a run, as it was explained; of two runs, both.
  async row(number) {
    const paths = [this.view.path, ...(this.beside ? [`/api/datasets/${encodeURIComponent(this.beside)}`] : [])];
    const opening = (this.opening = {});
    try {
      const found = await Promise.all(paths.map((path) => get(`${path}/rows/${number}`)));
      if (opening !== this.opening) return;
      this.detail.replaceChildren(h('article', { className: 'test opened' },
        h('div', { className: 'headed' }, h('h3', {}, `Row ${number}`), h('button', { type: 'button', className: 'quiet small', onclick: () => this.detail.replaceChildren() }, 'Close')),
        h('div', { className: found.length > 1 ? 'pair' : '' }, found.map((one) => this.opened(one, number)))));
    } catch (error) {
      if (opening !== this.opening) return;
      this.detail.replaceChildren(h('p', { className: 'status failed', role: 'alert' }, error.message)); // the other status may be far above
    }
    this.detail.scrollIntoView({ block: 'nearest' });
  }

  opened(found, number) {
    const [row] = found.rows;
    const words = heat.row(found.cells, row.relevance, row.scale, new Set(), `row ${number} by ${row.method}`, true);
    heat.listen(words, { act() {}, numbers: (i) => [[row.method, signed(row.relevance[i], row.scale)]] });
    return h('div', {}, h('h4', {}, `${row.method}: ${found.target} ${signed(found.score)} (${found.output})`), h('p', { className: 'soft' }, found.model),
      words, ledger(row.ledger, found.cells.map((cell, i) => ({ name: cell.text, amount: row.relevance[i] })), 'word'));
  }
}
