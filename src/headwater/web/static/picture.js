// What images and molecules share: a drawing with a panel for every method, the prediction, the ledger, all numbers.

import { post, ready } from './api.js';
import { methodPicker, outputPicker, targetPicker } from './choosing.js';
import { classes } from './classes.js';
import { h, plural } from './dom.js';
import { drawing } from './drawing.js';
import { ledger } from './ledger.js';
import { MaskBox, maskButton } from './masks.js';
import { chosenModel, followedModel, isMissing, missingNote, modelAsked, modelLine } from './models.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { placesFor, roundToSum, shown, shownInputs } from './sums.js';
import { term } from './terms.js';
import { VerdictLine } from './verdict.js';
import { View } from './view.js';

const NARROW = 640; // a window where one panel is as wide as it can be read

// `kind` is 'image' or 'molecule', `short` what its state's names begin with, `unit` what a number belongs to.
export class PictureView extends View {
  constructor(about, { kind, short, unit, png }) {
    super();
    Object.assign(this, { about, kind, short, unit, png });
    this.model = chosenModel(about, kind, `${short}model`);
    this.says = new VerdictLine();
    this.masked = new Set();
    this.tested = new MaskBox(this.status, { unmask: () => this.mask(null), unit: plural(unit) });
    this.element = isMissing(this.model) ? missingNote(this.model, 'No model here yet') : this.built();
  }

  name(what) { return `${this.short}${what}`; }

  chosen() { return state.list(this.name('m'), [this.model.method, 'gi']); }

  built() {
    this.methods = methodPicker(this.about.methods, () => this.chosen(), (names) => { state.set({ [this.name('m')]: names }); this.explain(); }, { most: 8, usual: this.model.method });
    this.target = targetPicker(() => this.changed());
    this.output = outputPicker(() => this.changed());
    this.prediction = h('div');
    this.sheet = h('div', { className: 'sheet', role: 'region', tabindex: 0, 'aria-label': 'Drawing' });
    this.sheet.addEventListener('click', (event) => {
      const found = event.target.closest?.('[data-item]');
      if (found) this.mask(Number(found.dataset.item));
    });
    this.books = h('div');
    this.book = h('select', { 'aria-label': 'Ledger of this method', onchange: () => this.showLedger() });
    this.table = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'All numbers' });
    return h('div', { className: 'view' },
      h('section', { className: 'card input' }, modelLine(this.about, this.kind, this.name('model'), () => this.remodel()), this.input(), h('div', { className: 'under' }, this.given(), this.status.element)),
      h('aside', { className: 'side', 'aria-label': 'Prediction and choices' },
        h('section', { className: 'card' }, h('h2', {}, 'Prediction'), this.prediction),
        h('section', { className: 'card choices' }, h('h2', {}, 'What is explained'), this.target.element,
          h('div', { className: 'row two' }, this.output.element, this.extra()), this.methods.element)),
      this.results = h('div', { className: 'results' }, this.missing.element, this.says.element,
        h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Relevance', ' ', term('relevance', '?')), saver(() => this.report(), this.status)), this.sheet,
          h('p', { className: 'soft hint' }, `Click ${this.unit === 'atom' ? 'an atom' : 'a patch'}, or open the list below and choose it there, to mask it and see what the model says then.`), this.tested.element,
          h('details', {}, h('summary', { className: 'soft' }, `every ${this.unit} with its numbers`), this.table)),
        h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Ledger', ' ', term('ledger', '?')), h('label', { className: 'inline' }, this.book)), this.books)));
  }

  extra() { return null; }

  show() {
    if (!this.sheet) return;
    const model = followedModel(this.element, this.about, this.kind, this.name('model'));
    if (model.name !== this.model.name) { this.model = model; this.clear(''); }
    this.methods.show();
    this.output.select.value = state.get(this.name('as'), 'logit');
    this.target.fill(this.model.classes);
    this.target.set(state.get(this.name('t')), state.get(this.name('v')));
    this.restore();
    this.explain();
  }

  remodel() {
    this.model = chosenModel(this.about, this.kind, this.name('model'));
    this.target.fill(this.model.classes);
    this.target.set('', '');
    this.changed();
  }

  // Nothing that was found for another input stays on the screen.
  clear(message) {
    this.found = null;
    this.masked.clear();
    this.tested.clear();
    this.prediction.replaceChildren(h('p', { className: 'soft' }, 'Nothing to predict.'));
    for (const place of [this.sheet, this.books, this.table]) place.replaceChildren();
    this.missing.say(this.results, message);
  }

  // Mask one item more or less; null takes all masks off.
  async mask(number) {
    if (!this.found || number >= this.found.items.length) return;
    if (number === null) this.masked.clear();
    else if (!this.masked.delete(number)) this.masked.add(number);
    this.mark();
    if (!this.masked.size) { this.untested(); return; }
    const found = await this.tested.ask(`/api/${this.kind}/mask`, { ...this.sent, masked: [...this.masked] });
    if (found && this.found) this.prediction.replaceChildren(classes(found.before, found.after, this.found.prediction));
  }

  untested() {
    this.tested.clear();
    this.prediction.replaceChildren(classes(this.found.classes, null, this.found.prediction));
  }

  mark() {
    this.element.querySelectorAll('[data-item]').forEach((one) => one.classList.toggle('masked', this.masked.has(Number(one.dataset.item))));
    this.table.querySelectorAll('[data-mask]').forEach((one) => one.setAttribute('aria-pressed', String(this.masked.has(Number(one.dataset.mask)))));
  }

  repaint() { this.explain(); }

  changed() {
    const [t, v] = this.target.get();
    state.set({ [this.name('t')]: t, [this.name('v')]: v, [this.name('as')]: this.output.select.value === 'logit' ? '' : this.output.select.value });
    this.explain();
  }

  body() {
    return {
      ...this.data(), methods: this.chosen(), output: this.output.select.value,
      palette: state.get('palette', 'red-blue'), model: modelAsked(this.about, this.kind, this.model), ...(innerWidth < NARROW ? { columns: 1 } : {}),
    };
  }

  async explain() {
    if (!this.data()) {
      this.latest.stop();
      this.status.say('');
      this.clear(this.lacks());
      return;
    }
    let sent;
    const found = await this.latest.run(async (options) => {
      if (this.model.state !== 'ready') await this.read(options);
      const body = this.body();
      return this.target.answered((target) => {
        sent = { ...body, target };
        return post(`/api/${this.kind}`, sent, options);
      });
    });
    if (!found) return;
    Object.assign(this, { found, sent });
    this.masked.clear();
    this.missing.clear(this.results);
    this.says.show(found.verdict);
    this.untested();
    this.draw();
  }

  async read(options) {
    this.model = await ready(this.kind, { ...options, name: this.model.name });
    this.target.fill(this.model.classes);
    this.target.set(state.get(this.name('t')), state.get(this.name('v')));
  }

  draw() {
    const { found } = this;
    this.sheet.replaceChildren(drawing(found.svg, `${this.kind} with the relevance of every ${this.unit} by ${found.rows.map((r) => r.method).join(', ')}`),
      ...found.refused.map((one) => h('p', { className: 'refused' }, h('b', {}, one.method), ` gave no explanation: ${one.reason}`)));
    this.book.replaceChildren(...found.rows.map((row) => h('option', { value: row.method }, row.method)));
    if (found.rows.some((row) => row.method === this.model.method)) this.book.value = this.model.method;
    this.showLedger();
    const columns = found.rows.map((row) => roundToSum(row.relevance, shownInputs(row.ledger, placesFor(row.scale)), placesFor(row.scale)));
    this.table.replaceChildren(h('table', { className: 'numbers' },
      h('thead', {}, h('tr', {}, [this.unit, ...found.rows.map((r) => r.method)].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, found.items.map((item, i) => h('tr', {}, h('th', { scope: 'row' }, maskButton(item, i, this.masked, (number) => this.mask(number))), found.rows.map((row, k) => h('td', {}, shown(columns[k][i], placesFor(row.scale))))))),
      h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'sum'), found.rows.map((row) => h('td', {}, shown(shownInputs(row.ledger, placesFor(row.scale)), placesFor(row.scale))))))));
  }

  showLedger() {
    const row = this.found?.rows.find((one) => one.method === this.book.value);
    if (!row) return;
    this.books.replaceChildren(ledger(row.ledger, this.found.items.map((name, i) => ({ name, amount: row.relevance[i] })), this.unit));
  }

  report() {
    return this.found ? { path: `/api/${this.kind}/report`, name: this.kind, body: { ...this.sent, masked: [...this.masked] }, png: this.png } : null;
  }
}
