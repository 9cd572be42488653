// Results on disk: rows to sort and search, the words that matter most, curves, the page.

import { get } from './api.js';
import { lines } from './chart.js';
import { debounced, h, signed } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { FORMS, saver } from './saving.js';
import { state } from './state.js';
import { Status } from './status.js';

const COUNT = 50;
const NAMES = { rows: 'Rows', words: 'Words', curves: 'Curves', page: 'Page' };
const KINDS = { evaluation: 'evaluation', run: 'explained dataset', bias: 'bias audit' };

export class ResultsView {
  constructor(about) {
    this.element = h('div', { className: 'view wide-view' });
    this.empty = !about.datasets;
  }

  async show() {
    if (this.empty) {
      this.element.replaceChildren(h('div', { className: 'note' }, h('h1', {}, 'No results were opened'),
        h('p', {}, 'Start the explorer with ', h('code', {}, 'headwater app --results DIR'), ', where DIR is what ',
          h('code', {}, 'headwater run'), ', ', h('code', {}, 'headwater evaluate --out'), ' or ', h('code', {}, 'headwater bias --out'), ' wrote, or a directory of those.')));
      return;
    }
    if (!this.list) {
      this.list = await get('/api/datasets');
      this.choice = h('select', { id: 'result', onchange: () => { state.set({ result: this.choice.value, part: '', sort: '', find: '' }); this.open(); } },
        this.list.map((one) => h('option', { value: one.id }, `${one.name} (${KINDS[one.kind]})`)));
      this.facts = h('dl', { className: 'facts-row' });
      this.parts = h('div', { className: 'tabs', role: 'group', 'aria-label': 'Parts of the result' });
      this.body = h('div');
      this.status = new Status();
      this.element.replaceChildren(
        h('section', { className: 'card input' }, h('h1', { className: 'heard' }, 'Results'), h('label', { for: 'result', className: 'big' }, 'Open a result'), this.choice, this.facts),
        h('div', { className: 'results' }, h('section', { className: 'card' }, h('div', { className: 'headed' }, this.parts, saver(() => this.files(), this.status, FORMS)), this.status.element, this.body)));
    }
    const wanted = state.get('result');
    this.choice.value = this.list.some((one) => one.id === wanted) ? wanted : this.list[0].id;
    await this.open();
  }

  get path() { return `/api/datasets/${encodeURIComponent(this.choice.value)}`; }

  async open() {
    this.status.working(() => {});
    try {
      const found = await get(this.path);
      this.facts.replaceChildren(...found.facts.map((fact) => h('div', {}, h('dt', {}, fact.name), h('dd', {}, fact.value))));
      const part = found.has.includes(state.get('part')) ? state.get('part') : found.has[0];
      this.parts.replaceChildren(...found.has.map((name) => h('button', { type: 'button', 'aria-pressed': String(name === part), 'data-part': name, onclick: () => { state.set({ part: name }); this.open(); } }, NAMES[name])));
      this.kind = found.kind;
      this.part = part;
      await this[part]();
      this.status.say('');
    } catch (error) {
      this.status.fail(error.message);
    }
  }

  query() {
    const sort = state.get('sort');
    return new URLSearchParams({ start: this.start ?? 0, count: COUNT, find: state.get('find'), down: state.get('down') === '1', ...(sort ? { sort } : {}) });
  }

  // What is on the screen as files: the page of the whole, a drawing and the numbers of the part.
  files() {
    const part = this.part === 'page' ? (this.kind === 'evaluation' ? 'curves' : 'words') : this.part;
    const drawing = `${this.path}/drawing?part=${part}&${this.query()}`;
    return { name: part, files: { html: `${this.path}/page?save=true`, svg: drawing, json: `${this.path}/${part}?${this.query()}` } };
  }

  async rows() {
    this.start = 0;
    const search = h('input', { type: 'search', id: 'find', maxlength: 200, placeholder: 'search in all texts' });
    search.value = state.get('find');
    search.addEventListener('input', debounced(250, () => { this.start = 0; state.set({ find: search.value }); this.page_of_rows(); }));
    this.table = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Rows' });
    this.pager = h('div', { className: 'pager' });
    this.detail = h('div', { 'aria-live': 'polite' });
    this.body.replaceChildren(h('label', { for: 'find', className: 'heard' }, 'Search the rows'), search, this.detail, this.table, this.pager);
    await this.page_of_rows();
  }

  async page_of_rows() {
    const [sort, down] = [state.get('sort'), state.get('down') === '1'];
    const found = await get(`${this.path}/rows?${this.query()}`);
    const head = found.columns.map((column) => h('th', { scope: 'col', className: column.text ? 'text' : '', 'aria-sort': column.name === sort ? (down ? 'descending' : 'ascending') : undefined },
      h('button', { type: 'button', className: 'sorts', onclick: () => { state.set({ sort: column.name, down: column.name === sort && !down ? '1' : '' }); this.start = 0; this.page_of_rows(); } }, column.name)));
    const whole = Object.fromEntries(found.columns.map((column, i) => [column.name, found.rows.every((row) => Number.isInteger(row[i]))]));
    const id = found.columns.findIndex((column) => column.name === 'row_id');
    this.table.replaceChildren(h('table', { className: 'numbers rows-table' }, h('thead', {}, h('tr', {}, head)),
      h('tbody', {}, found.rows.map((row) => h('tr', {}, row.map((value, i) => this.cell(found.columns[i], value, whole, this.kind === 'run' && i === id)))))));
    const last = Math.min(this.start + COUNT, found.matched);
    this.pager.replaceChildren(
      h('span', { className: 'soft' }, found.matched ? `${this.start + 1} to ${last} of ${found.matched.toLocaleString('en')}${found.matched < found.total ? ` (${found.total.toLocaleString('en')} in all)` : ''}` : 'nothing found'),
      h('button', { type: 'button', className: 'quiet', disabled: this.start === 0, onclick: () => { this.start -= COUNT; this.page_of_rows(); } }, 'Back'),
      h('button', { type: 'button', className: 'quiet', disabled: last >= found.matched, onclick: () => { this.start += COUNT; this.page_of_rows(); } }, 'Next'));
  }

  cell(column, value, whole, opens) {
    if (opens) return h('td', {}, h('button', { type: 'button', className: 'quiet small', 'aria-label': `Open row ${value}`, onclick: () => this.row(value) }, String(value)));
    if (column.text) return h('td', { className: 'text' }, value ?? '');
    return h('td', {}, value === null ? '' : typeof value === 'boolean' ? (value ? 'yes' : 'no') : whole[column.name] ? String(value) : signed(value));
  }

  // One row of a run, as it was explained.
  async row(number) {
    const found = await get(`${this.path}/rows/${number}`);
    const [row] = found.rows;
    const unit = 'word';
    const words = heat.row(found.cells, row.relevance, row.scale, new Set(), `row ${number}`, true);
    heat.listen(words, { act() {}, numbers: (i) => [[row.method, signed(row.relevance[i], row.scale)]] });
    this.detail.replaceChildren(h('article', { className: 'test opened' },
      h('div', { className: 'headed' }, h('h3', {}, `Row ${number}: ${found.target} ${signed(found.score)} (${found.output})`),
        h('button', { type: 'button', className: 'quiet small', onclick: () => this.detail.replaceChildren() }, 'Close')),
      words, heat.key(), ledger(row.ledger, found.cells.map((cell, i) => ({ name: cell.text, amount: row.relevance[i] })), unit)));
    this.detail.scrollIntoView({ block: 'nearest' });
  }

  async words() {
    const found = await get(`${this.path}/words?count=40`);
    const scale = Math.max(...found.words.map((word) => Math.abs(word.total)), 0);
    const side = (title, words) => h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': title }, h('table', { className: 'numbers' }, h('caption', {}, title),
      h('thead', {}, h('tr', {}, ['word', 'times', 'mean', 'in all'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, words.map((word) => {
        const { kind, share } = heat.look(word.total, scale);
        return h('tr', {}, h('th', { scope: 'row' }, h('span', { className: `w ${kind}`, style: { '--o': share.toFixed(3) } }, word.text)), h('td', {}, String(word.count)), h('td', {}, signed(word.mean)), h('td', {}, signed(word.total, scale)));
      }))));
    this.body.replaceChildren(
      h('p', { className: 'soft' }, `Relevance of every word, added up over ${found.rows.toLocaleString('en')} rows, each for the score that it explains.`),
      h('div', { className: 'pair' }, side('Add most over all', found.words.filter((w) => w.total > 0)), side('Take away most', found.words.filter((w) => w.total < 0).reverse())));
  }

  async curves() {
    const found = await get(`${this.path}/curves`);
    this.body.replaceChildren(...found.map((one) => h('figure', { className: 'curve' },
      h('figcaption', {}, `${one.name}: a ${one.better} curve is better`),
      lines({
        series: one.series.map((s) => ({ name: s.method, values: s.mean })), places: one.fractions.map((f) => `${Math.round(f * 100)} %`), x: one.fractions,
        title: `${one.name} curves of ${one.series.map((s) => s.method).join(', ')}`, across: one.name === 'activation' || one.name === 'insertion' ? 'share put back' : 'share taken away', height: 280,
      }),
      h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': `${one.name} in numbers` }, h('table', { className: 'numbers' }, h('thead', {}, h('tr', {}, ['method', 'area under the curve'].map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, one.series.map((s) => h('tr', {}, h('th', { scope: 'row' }, s.method), h('td', {}, s.area.toPrecision(4))))))))));
  }

  async page() {
    this.body.replaceChildren(
      h('iframe', { className: 'framed', src: `${this.path}/page`, sandbox: '', title: 'The result as a page' }));
  }
}
