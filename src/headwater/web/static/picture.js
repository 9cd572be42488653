// What images and molecules share: a drawing with a panel for every method, the prediction, the ledger, all numbers.

import { Latest, post, ready } from './api.js';
import { methodPicker, outputPicker, targetPicker } from './choosing.js';
import { classes } from './classes.js';
import { h, signed } from './dom.js';
import { drawing } from './drawing.js';
import { ledger } from './ledger.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { Status } from './status.js';

const NARROW = 640; // a window where one panel is as wide as it can be read

// `kind` is 'image' or 'molecule', `short` what its state's names begin with, `unit` what a number belongs to.
export class PictureView {
  constructor(about, { kind, short, unit, png }) {
    Object.assign(this, { about, kind, short, unit, png });
    this.model = about.models.find((m) => m.kind === kind);
    this.status = new Status();
    this.latest = new Latest(this.status);
    this.element = this.model.state === 'absent' || this.model.state === 'failed' ? this.absent() : this.built();
  }

  absent() {
    return h('div', {}, h('div', { className: 'note' }, h('h1', {}, 'No model here yet'), h('p', {}, this.model.hint)));
  }

  name(what) { return `${this.short}${what}`; }

  chosen() { return state.list(this.name('m'), [this.model.method, 'gi']); }

  built() {
    this.methods = methodPicker(this.about.methods, () => this.chosen(), (names) => { state.set({ [this.name('m')]: names }); this.explain(); }, { most: 8, usual: this.model.method });
    this.target = targetPicker(() => this.changed());
    this.output = outputPicker(() => this.changed());
    this.prediction = h('div');
    this.sheet = h('div', { className: 'sheet', role: 'region', tabindex: 0, 'aria-label': 'Drawing' });
    this.books = h('div');
    this.book = h('select', { 'aria-label': 'Ledger of this method', onchange: () => this.showLedger() });
    this.table = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'All numbers' });
    return h('div', { className: 'view' },
      h('section', { className: 'card input' }, this.input(), h('div', { className: 'under' }, this.given(), this.status.element)),
      h('aside', { className: 'side', 'aria-label': 'Prediction and choices' },
        h('section', { className: 'card' }, h('h2', {}, 'Prediction'), this.prediction),
        h('section', { className: 'card choices' }, h('h2', {}, 'What is explained'), this.target.element,
          h('div', { className: 'row two' }, this.output.element, this.extra()), this.methods.element)),
      h('div', { className: 'results' },
        h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Relevance'), saver(() => this.report(), this.status)), this.sheet,
          h('details', {}, h('summary', { className: 'soft' }, `every ${this.unit} with its numbers`), this.table)),
        h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Ledger'), h('label', { className: 'inline' }, this.book)), this.books)));
  }

  extra() { return null; }

  show() {
    if (!this.sheet) return;
    this.methods.show();
    this.output.select.value = state.get(this.name('as'), 'logit');
    this.target.fill(this.model.classes);
    this.target.set(state.get(this.name('t')), state.get(this.name('v')));
    this.restore();
    this.explain();
  }

  repaint() { this.explain(); }

  changed() {
    const [t, v] = this.target.get();
    state.set({ [this.name('t')]: t, [this.name('v')]: v, [this.name('as')]: this.output.select.value === 'logit' ? '' : this.output.select.value });
    this.explain();
  }

  body() {
    return {
      ...this.data(), methods: this.chosen(), target: this.target.asked(this.found?.prediction), output: this.output.select.value,
      palette: state.get('palette', 'red-blue'), ...(innerWidth < NARROW ? { columns: 1 } : {}),
    };
  }

  async explain() {
    if (!this.data()) return;
    const found = await this.latest.run(async (options) => {
      if (this.model.state !== 'ready') await this.read(options);
      return post(`/api/${this.kind}`, this.body(), options);
    });
    if (!found) return;
    this.found = found;
    this.draw();
  }

  async read(options) {
    this.model = await ready(this.kind, options);
    this.target.fill(this.model.classes);
    this.target.set(state.get(this.name('t')), state.get(this.name('v')));
  }

  draw() {
    const { found } = this;
    this.prediction.replaceChildren(classes(found.classes, null, found.prediction));
    this.sheet.replaceChildren(drawing(found.svg, `${this.kind} with the relevance of every ${this.unit} by ${found.rows.map((r) => r.method).join(', ')}`),
      ...found.refused.map((one) => h('p', { className: 'refused' }, h('b', {}, one.method), ` gave no explanation: ${one.reason}`)));
    this.book.replaceChildren(...found.rows.map((row) => h('option', { value: row.method }, row.method)));
    if (found.rows.some((row) => row.method === this.model.method)) this.book.value = this.model.method;
    this.showLedger();
    this.table.replaceChildren(h('table', { className: 'numbers' },
      h('thead', {}, h('tr', {}, [this.unit, ...found.rows.map((r) => r.method)].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, found.items.map((item, i) => h('tr', {}, h('th', { scope: 'row' }, item), found.rows.map((row) => h('td', {}, signed(row.relevance[i], row.scale))))))));
  }

  showLedger() {
    const row = this.found?.rows.find((one) => one.method === this.book.value);
    if (!row) return;
    this.books.replaceChildren(ledger(row.ledger, this.found.items.map((name, i) => ({ name, amount: row.relevance[i] })), this.unit));
  }

  report() {
    return this.found ? { path: `/api/${this.kind}/report`, name: this.kind, body: this.body(), png: this.png } : null;
  }
}
