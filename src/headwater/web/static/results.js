// Results on disk: rows to sort and search, slices, the words that matter most, curves, the page.

import { get } from './api.js';
import { lines } from './chart.js';
import { h } from './dom.js';
import { COUNT, RowsPart } from './rows.js';
import { FORMS, saver } from './saving.js';
import { SlicesPart } from './slices.js';
import { state } from './state.js';
import { Status } from './status.js';
import { WordsPart } from './words.js';

const NAMES = { rows: 'Rows', slices: 'Slices', words: 'Words', curves: 'Curves', page: 'Page' };
const FRESH = { sort: '', down: '', find: '', within: '', where: '', beside: '', by: '', lab: '', wc: '', wb: '' };
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
      try {
        this.list = await get('/api/datasets');
      } catch (error) {
        this.element.replaceChildren(h('p', { className: 'note status failed', role: 'alert' }, error.message));
        return;
      }
      this.choice = h('select', { id: 'result', onchange: () => { state.set({ result: this.choice.value, part: '', ...FRESH }); this.open(); } },
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
    const opened = (this.opened = {});
    this.status.working(() => {});
    try {
      const found = await get(this.path);
      if (opened !== this.opened) return;
      this.facts.replaceChildren(...found.facts.map((fact) => h('div', {}, h('dt', {}, fact.name), h('dd', {}, fact.value))));
      const part = found.has.includes(state.get('part')) ? state.get('part') : found.has[0];
      this.parts.replaceChildren(...found.has.map((name) => h('button', { type: 'button', 'aria-pressed': String(name === part), 'data-part': name, onclick: () => { state.set({ part: name }); this.open(); } }, NAMES[name])));
      this.kind = found.kind;
      this.part = part;
      const body = h('div');
      this.body.replaceWith(body);
      this.body = body;
      await this[part]();
      if (opened === this.opened) this.status.say('');
    } catch (error) {
      if (opened === this.opened) this.status.fail(error.message);
    }
  }

  query() {
    const sort = state.get('sort');
    const asked = {
      start: this.rowsPart?.start ?? 0, count: COUNT, find: state.get('find'), down: state.get('down') === '1', ...(sort ? { sort } : {}),
      ...(state.get('within') ? { within: state.get('within') } : {}), ...(state.get('where') ? { where: state.get('where') } : {}),
    };
    return new URLSearchParams(asked);
  }

  // What is on the screen as files: the page of the whole, and the numbers of the part. Drawings are made of the screen.
  files() {
    const part = this.part === 'page' ? (this.kind === 'evaluation' ? 'curves' : 'words') : this.part;
    const numbers = {
      slices: () => `${this.path}/slices?by=${encodeURIComponent(this.slicesPart?.column ?? '')}&${this.query()}`,
      words: () => `${this.path}/words?count=500${this.wordsPart?.query() ?? ''}`,
    }[part] ?? (() => `${this.path}/${part}?${this.query()}${part === 'rows' && state.get('beside') ? `&beside=${encodeURIComponent(state.get('beside'))}` : ''}`);
    return { name: part, framed: this.part === 'page', files: { html: `${this.path}/page?save=true`, svg: `${this.path}/drawing?part=${part === 'slices' ? 'rows' : part}&${this.query()}`, json: numbers() } };
  }

  async rows() {
    this.rowsPart = new RowsPart(this);
    await this.rowsPart.show();
  }

  async words() {
    this.wordsPart = new WordsPart(this);
    await this.wordsPart.show();
  }

  async slices() {
    this.slicesPart = new SlicesPart(this);
    await this.slicesPart.show();
  }

  async curves() {
    const { body } = this;
    const found = await get(`${this.path}/curves`);
    body.replaceChildren(...found.map((one) => h('figure', { className: 'curve' },
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
