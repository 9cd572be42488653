// Explore: a text, its prediction, relevance by several methods on the same words, masking, ledger, audit.

import { Latest, post, ready } from './api.js';
import { audit } from './audit.js';
import { examples, methodPicker, outputPicker, targetPicker } from './choosing.js';
import { classes } from './classes.js';
import { debounced, h, onCtrlEnter, plural, signed } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { MaskBox } from './masks.js';
import { chosenModel, followedModel, modelAsked, modelLine } from './models.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { placesFor, roundToSum, shown, shownInputs, sumLine } from './sums.js';
import { term } from './terms.js';
import { VerdictLine } from './verdict.js';
import { View } from './view.js';

// The first is one on which methods disagree: `gi` says that "dull" takes away, `lrp` that it adds; mask it to see.
const EXAMPLES = [
  ['negation', 'I could not stop laughing: not one dull minute.'],
  ['praise', 'A gripping, beautifully acted film.'],
  ['mixed', 'The plot is thin and the ending is silly, but the cast is wonderful.'],
  ['double negation', 'This is not a bad movie, and it is never boring.'],
  ['a turn', 'I expected a masterpiece and got a dull, overlong mess.'],
  ['no opinion', 'The film was released in March and runs for two hours.'],
];
const WAIT = 220; // ms after the last key, before the text is explained

export class TextView extends View {
  constructor(about) {
    super();
    this.about = about;
    this.model = chosenModel(about, 'text', 'model');
    this.says = new VerdictLine();
    this.tested = new MaskBox(this.status, {
      unmask: () => this.unmask(), unit: 'words',
      more: (found) => h('button', { type: 'button', className: 'quiet', onclick: () => this.load(found.text) }, 'Explain what is left'),
    });
    this.auditing = new Latest(this.status);
    this.masked = new Set();
    this.build();
  }

  build() {
    this.box = h('textarea', { id: 'text', rows: 2, maxlength: 20000, spellcheck: 'false', 'aria-describedby': 'text-hint' });
    const typed = debounced(WAIT, () => this.changed());
    this.box.addEventListener('input', () => { this.grow(); typed(); });
    onCtrlEnter(this.box, () => this.changed());
    this.methods = methodPicker(this.about.methods, () => this.named(), (names) => {
      state.set({ methods: names });
      this.explain();
    }, { most: 8, id: 'methods', usual: this.model.method });
    this.target = targetPicker(() => this.chosen());
    this.target.fill(this.model.classes);
    this.output = outputPicker(() => this.chosen());
    this.unit = h('select', { onchange: () => { state.set({ unit: this.unit.value === 'word' ? '' : 'token' }); this.explain(); } },
      h('option', { value: 'word' }, 'words'), h('option', { value: 'token' }, 'tokens of the model'));
    this.prediction = h('div');
    this.rows = h('div', { className: 'rows' });
    heat.listen(this.rows, { act: (i, found) => this.mask(i, found), numbers: (i) => this.numbers(i) });
    this.compared = h('span', { className: 'soft' });
    this.oneScale = this.toggle('scale', 'one', 'one scale for all rows');
    this.numbered = this.toggle('numbers', 'on', 'numbers under the words');
    this.books = h('div');
    this.book = h('select', { 'aria-label': 'Ledger of this method', onchange: () => { state.set({ book: this.book.value }); this.showLedger(); } });
    this.auditBody = h('div');
    this.auditBox = h('details', { className: 'card', id: 'audit', ontoggle: () => { state.set({ audit: this.auditBox.open ? '1' : '' }); this.audit(); } },
      h('summary', {}, h('h2', {}, 'Audit'), h('span', { className: 'soft' }, 'where relevance is lost, layer by layer')), this.auditBody);
    this.element = h('div', { className: 'view explore' },
      h('section', { className: 'card input', 'aria-labelledby': 'h-text' },
        h('h1', { id: 'h-text', className: 'heard' }, 'Explain a text'),
        modelLine(this.about, 'text', 'model', () => this.remodel()),
        h('label', { for: 'text', className: 'big' }, 'Type or paste a text'),
        this.box,
        h('div', { className: 'under' }, examples('Examples', EXAMPLES, (text) => this.load(text)), this.status.element),
        h('p', { id: 'text-hint', className: 'heard' }, 'It is explained as you type.')),
      h('aside', { className: 'side', 'aria-label': 'Prediction and choices' },
        h('section', { className: 'card' }, h('h2', {}, 'Prediction'), this.prediction),
        h('section', { className: 'card choices' }, h('h2', {}, 'What is explained'), this.target.element,
          h('div', { className: 'row two' }, this.output.element, h('label', {}, 'by', this.unit)), this.methods.element)),
      this.results = h('div', { className: 'results' }, this.missing.element, this.says.element,
        h('section', { className: 'card', 'aria-labelledby': 'h-relevance' },
          h('div', { className: 'headed' }, h('h2', { id: 'h-relevance' }, 'Relevance', ' ', term('relevance', '?')), saver(() => this.report(), this.status)),
          this.rows, heat.key(this.compared, [this.oneScale.element, this.numbered.element]),
          h('p', { className: 'soft hint' }, 'Click a word, or press Enter on it, to mask it and see what the model says then.'),
          this.tested.element),
        h('section', { className: 'card', 'aria-labelledby': 'h-ledger' },
          h('div', { className: 'headed' }, h('h2', { id: 'h-ledger' }, 'Ledger', ' ', term('ledger', '?')), h('label', { className: 'inline' }, this.book)), this.books),
        this.auditBox));
  }

  // A switch whose state stands in the address; it changes how rows look, and asks nothing anew.
  toggle(name, on, said) {
    const box = h('input', { type: 'checkbox', 'data-switch': name, onchange: () => { state.set({ [name]: box.checked ? on : '' }); if (this.found) this.draw(); } });
    return { element: h('label', { className: 'check' }, box, said), show() { box.checked = state.get(name) === on; }, on: () => box.checked };
  }

  async remodel() {
    await this.take(chosenModel(this.about, 'text', 'model'));
    this.target.set('', '');
    this.chosen();
  }

  async take(model) {
    this.model = model;
    this.clear('');
    if (model.state !== 'ready') this.model = await this.latest.run((options) => ready('text', { ...options, name: model.name })) ?? this.model;
    this.target.fill(this.model.classes);
  }

  // Nothing that was found for another input stays on the screen.
  clear(message) {
    this.found = null;
    this.audited = undefined;
    this.tested.clear();
    this.auditing.stop();
    this.prediction.replaceChildren(h('p', { className: 'soft' }, 'Nothing to predict.'));
    this.rows.replaceChildren();
    this.books.replaceChildren();
    this.auditBody.replaceChildren();
    this.missing.say(this.results, message);
  }

  named() { return state.list('methods', [this.model.method, 'gi']); }

  async show() {
    const model = followedModel(this.element, this.about, 'text', 'model');
    if (model.name !== this.model.name || this.model.state !== 'ready') await this.take(model);
    this.methods.show();
    this.box.value = state.get('text', EXAMPLES[0][1]);
    this.target.set(state.get('t'), state.get('v'));
    this.output.select.value = state.get('as', 'logit');
    this.unit.value = state.get('unit', 'word');
    this.masked = new Set(state.list('mask').map(Number));
    this.auditBox.open = state.get('audit') === '1';
    this.oneScale.show();
    this.numbered.show();
    this.grow();
    this.explain();
  }

  grow() {
    this.box.style.setProperty('height', 'auto');
    this.box.style.setProperty('height', `${Math.min(this.box.scrollHeight + 2, 320)}px`);
  }

  load(text) {
    this.box.value = text;
    this.grow();
    this.changed();
  }

  changed() {
    this.masked.clear();
    state.set({ text: this.box.value, mask: '' });
    this.explain();
  }

  chosen() {
    const [t, v] = this.target.get();
    state.set({ t, v, as: this.output.select.value === 'logit' ? '' : this.output.select.value });
    this.explain();
  }

  body() {
    return {
      text: this.box.value,
      methods: this.named(),
      output: this.output.select.value,
      unit: this.unit.value,
      model: modelAsked(this.about, 'text', this.model),
    };
  }

  async explain() {
    if (!this.box.value.trim()) {
      this.latest.stop();
      this.status.say('');
      this.clear('There is no text: type one, or choose an example.');
      return;
    }
    const body = this.body();
    let sent;
    const found = await this.latest.run((options) => this.target.answered((target) => {
      sent = { ...body, target };
      return post('/api/explain', sent, options);
    }));
    if (!found) return;
    Object.assign(this, { found, sent });
    this.missing.clear(this.results);
    this.says.show(found.verdict);
    this.target.fill(this.model.classes.length ? this.model.classes : found.classes.map((c) => c.name));
    this.draw();
    if (this.masked.size) this.predict(); else this.untested();
    this.audit();
  }

  draw() {
    const { found } = this;
    if (!this.masked.size) this.untested();
    this.compared.textContent = this.oneScale.on() ? 'all rows have one scale: their largest relevance has full colour' : 'each row has full colour at its own largest relevance';
    this.rows.classList.toggle('numbered', this.numbered.on());
    this.rows.replaceChildren(...found.rows.map((row) => this.methodRow(row)), ...found.refused.map((one) =>
      h('p', { className: 'refused' }, h('b', {}, one.method), ` gave no explanation: ${one.reason}`)));
    const book = state.get('book');
    this.book.replaceChildren(...found.rows.map((row) => h('option', { value: row.method }, row.method)));
    this.book.value = found.rows.some((row) => row.method === book) ? book : found.rows[0].method;
    const preferred = found.rows.find((row) => row.method === this.model.method);
    if (!book && preferred) this.book.value = preferred.method;
    this.showLedger();
  }

  methodRow(row) {
    const { found } = this;
    const book = row.ledger;
    const scale = this.oneScale.on() ? Math.max(...found.rows.map((one) => one.scale)) : row.scale;
    const places = placesFor(row.scale);
    const numbers = roundToSum(row.relevance, shownInputs(book, places), places).map((value) => shown(value, places));
    return h('article', { className: 'method', 'data-method': row.method },
      h('header', {}, h('h3', {}, term(row.method)),
        h('p', { className: 'soft' }, `${found.target} ${signed(found.score)} (`, term(found.output), `) · ${found.windows > 1 ? `mean of ${found.windows} windows · ` : ''}`, sumLine(book.sum), ' · ',
          h('span', { className: book.closed ? 'closed' : 'open' }, book.closed ? 'adds up' : 'does not add up'))),
      heat.row(found.cells, row.relevance, scale, this.masked, `${row.method}: ${found.cells.length} ${plural(this.unit.value)} with their relevance`, false, numbers));
  }

  numbers(i) {
    const here = document.querySelector('.w:hover, .w:focus')?.closest('.method')?.dataset.method;
    return this.found?.rows.map((row) => [row.method, signed(row.relevance[i], row.scale), row.method === here]);
  }

  mask(i, element) {
    const { word } = this.found.cells[i];
    if (word === null) return;
    if (this.masked.has(word)) this.masked.delete(word); else this.masked.add(word);
    state.set({ mask: [...this.masked].sort((a, b) => a - b) });
    const now = this.masked.has(word);
    this.rows.querySelectorAll('.w.can').forEach((other) => {
      if (this.found.cells[other.dataset.i].word !== word) return;
      other.classList.toggle('masked', now);
      other.setAttribute('aria-pressed', String(now));
    });
    element.focus({ preventScroll: true });
    this.predict();
  }

  async predict() {
    if (!this.masked.size) { this.untested(); return; }
    const found = await this.tested.ask('/api/explain/mask', { ...this.sent, masked: [...this.masked] });
    if (found && this.found) this.prediction.replaceChildren(classes(found.before, found.after, this.found.prediction));
  }

  // The prediction as it is, with nothing masked.
  untested() {
    this.tested.clear();
    this.prediction.replaceChildren(classes(this.found.classes, null, this.found.prediction));
  }

  unmask() {
    this.masked.clear();
    state.set({ mask: '' });
    this.draw();
  }

  showLedger() {
    const row = this.found?.rows.find((one) => one.method === this.book.value);
    if (!row) return;
    const inputs = this.found.cells.map((cell, i) => ({ name: cell.text, amount: row.relevance[i] }));
    this.books.replaceChildren(ledger(row.ledger, inputs, this.unit.value));
  }

  async audit() {
    if (!this.auditBox.open || !this.found) return;
    const { text, target, output, model } = this.sent;
    const asked = JSON.stringify([text, target, output, model]);
    if (asked === this.audited) return;
    const found = await this.auditing.run((options) => post('/api/audit', { text, target, output, model }, options));
    if (!found) return;
    this.audited = asked;
    const save = saver(() => ({ path: '/api/audit/report', name: 'audit', body: { text, target, output, model } }), this.status);
    const cut = this.found.windows > 1 ? h('p', { className: 'soft' }, 'The text is longer than the model takes: this follows its beginning.') : '';
    this.auditBody.replaceChildren(cut, audit(found), save);
  }

  report() {
    if (!this.found) return null;
    return { path: '/api/explain/report', name: 'explanation', body: { ...this.sent, masked: [...this.masked] }, query: `&palette=${state.get('palette', 'red-blue')}` };
  }
}

