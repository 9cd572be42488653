// Explore: a text, its prediction, relevance by several methods on the same words, masking, ledger, audit.

import { Latest, post } from './api.js';
import { audit } from './audit.js';
import { examples, methodPicker, outputPicker, targetPicker } from './choosing.js';
import { classes } from './classes.js';
import { debounced, h, signed } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { Status } from './status.js';

const EXAMPLES = [
  ['praise', 'A gripping, beautifully acted film.'],
  ['mixed', 'The plot is thin and the ending is silly, but the cast is wonderful.'],
  ['negation', 'This is not a bad movie, and it is never boring.'],
  ['a turn', 'I expected a masterpiece and got a dull, overlong mess.'],
  ['no opinion', 'The film was released in March and runs for two hours.'],
];
const WAIT = 220; // ms after the last key, before the text is explained

export class TextView {
  constructor(about) {
    this.about = about;
    this.model = about.models.find((m) => m.kind === 'text');
    this.status = new Status();
    this.latest = new Latest(this.status);
    this.asking = new Latest({ working() {}, place() {}, wait() {}, done() {}, say() {}, fail: (m) => this.status.fail(m) });
    this.auditing = new Latest(this.status);
    this.masked = new Set();
    this.build();
  }

  build() {
    this.box = h('textarea', { id: 'text', rows: 2, maxlength: 20000, spellcheck: 'false', 'aria-describedby': 'text-hint' });
    const typed = debounced(WAIT, () => this.changed());
    this.box.addEventListener('input', () => { this.grow(); typed(); });
    this.box.addEventListener('keydown', (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) this.changed(); });
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
    this.test = h('div', { className: 'test', 'aria-live': 'polite' });
    this.books = h('div');
    this.book = h('select', { 'aria-label': 'Ledger of this method', onchange: () => { state.set({ book: this.book.value }); this.showLedger(); } });
    this.auditBody = h('div');
    this.auditBox = h('details', { className: 'card', id: 'audit', ontoggle: () => { state.set({ audit: this.auditBox.open ? '1' : '' }); this.audit(); } },
      h('summary', {}, h('h2', {}, 'Audit'), h('span', { className: 'soft' }, 'where relevance is lost, layer by layer')), this.auditBody);
    this.element = h('div', { className: 'view explore' },
      h('section', { className: 'card input', 'aria-labelledby': 'h-text' },
        h('h1', { id: 'h-text', className: 'heard' }, 'Explain a text'),
        h('label', { for: 'text', className: 'big' }, 'Type or paste a text'),
        this.box,
        h('div', { className: 'under' }, examples('Examples', EXAMPLES, (text) => this.load(text)), this.status.element),
        h('p', { id: 'text-hint', className: 'heard' }, 'It is explained as you type.')),
      h('aside', { className: 'side', 'aria-label': 'Prediction and choices' },
        h('section', { className: 'card' }, h('h2', {}, 'Prediction'), this.prediction),
        h('section', { className: 'card choices' }, h('h2', {}, 'What is explained'), this.target.element,
          h('div', { className: 'row two' }, this.output.element, h('label', {}, 'by', this.unit)), this.methods.element)),
      h('div', { className: 'results' },
        h('section', { className: 'card', 'aria-labelledby': 'h-relevance' },
          h('div', { className: 'headed' }, h('h2', { id: 'h-relevance' }, 'Relevance'), saver(() => this.report(), this.status)),
          this.rows, heat.key(),
          h('p', { className: 'soft hint' }, 'Click a word, or press Enter on it, to mask it and see what the model says then.'),
          this.test),
        h('section', { className: 'card', 'aria-labelledby': 'h-ledger' },
          h('div', { className: 'headed' }, h('h2', { id: 'h-ledger' }, 'Ledger'), h('label', { className: 'inline' }, this.book)), this.books),
        this.auditBox));
  }

  named() { return state.list('methods', [this.model.method, 'gi']); }

  show() {
    this.methods.show();
    this.box.value = state.get('text', EXAMPLES[0][1]);
    this.target.set(state.get('t'), state.get('v'));
    this.output.select.value = state.get('as', 'logit');
    this.unit.value = state.get('unit', 'word');
    this.masked = new Set(state.list('mask').map(Number));
    this.auditBox.open = state.get('audit') === '1';
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
      target: this.target.asked(this.found?.prediction),
      output: this.output.select.value,
      unit: this.unit.value,
    };
  }

  async explain() {
    if (!this.box.value.trim()) {
      this.latest.stop();
      this.status.say('Type something, or choose an example.');
      return;
    }
    const found = await this.latest.run((options) => post('/api/explain', this.body(), options));
    if (!found) return;
    this.found = found;
    this.target.fill(this.model.classes.length ? this.model.classes : found.classes.map((c) => c.name));
    this.draw();
    if (this.masked.size) this.predict(); else this.showTest();
    this.audit();
  }

  draw() {
    const { found } = this;
    this.prediction.replaceChildren(classes(found.classes, null, found.prediction));
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
    return h('article', { className: 'method', 'data-method': row.method },
      h('header', {}, h('h3', {}, row.method),
        h('p', { className: 'soft' }, `${found.target} ${signed(found.score)} (${found.output}) · ${found.windows > 1 ? `mean of ${found.windows} windows · ` : ''}words sum to ${signed(book.inputs, found.score)} · `,
          h('span', { className: book.closed ? 'closed' : 'open' }, book.closed ? 'adds up' : `${signed(book.unaccounted, found.score)} unaccounted`))),
      heat.row(found.cells, row.relevance, row.scale, this.masked, `${row.method}: ${found.cells.length} ${this.unit.value}s with their relevance`));
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
    if (!this.masked.size) { this.showTest(); return; }
    const [target, versus] = this.target.get();
    const named = target === '' && versus === '' ? this.body().target ?? this.own() : this.body().target;
    const found = await this.asking.run((options) => post('/api/predict', {
      text: this.box.value, masked: [...this.masked], target: named, output: this.output.select.value,
    }, options));
    if (found) this.showTest(found);
  }

  // What was predicted before anything was masked, as the API takes a class.
  own() {
    const best = this.found.classes.reduce((a, b) => (b.probability > a.probability ? b : a));
    return best.name.includes(' - ') ? null : best.name;
  }

  showTest(answer) {
    if (!answer) {
      this.prediction.replaceChildren(classes(this.found.classes, null, this.found.prediction));
      this.test.replaceChildren();
      return;
    }
    const change = answer.score_after - answer.score_before;
    this.prediction.replaceChildren(classes(answer.before, answer.after, this.found.prediction));
    const words = [...this.masked].sort((a, b) => a - b).map((n) => this.found.cells.find((c) => c.word === n)?.text ?? n);
    const sums = this.found.rows.map((row) => [row, row.relevance.reduce((sum, value, i) =>
      sum + (this.masked.has(this.found.cells[i].word) ? value : 0), 0)]);
    this.test.replaceChildren(
      h('h3', {}, 'Put to the test'),
      h('p', {}, 'Without ', h('b', {}, words.slice(0, 8).join(', ') + (words.length > 8 ? ` and ${words.length - 8} more` : '')),
        ` the score of ${answer.target} goes from ${signed(answer.score_before)} to ${signed(answer.score_after)}: `,
        h('b', { className: 'change' }, signed(change, answer.score_before)), '.'),
      h('ul', { className: 'facts' }, sums.map(([row, sum]) => h('li', {}, h('b', {}, row.method), ` gave ${words.length === 1 ? 'it' : 'them'} ${signed(sum, this.found.score)}`))),
      h('p', {}, h('button', { type: 'button', className: 'quiet', onclick: () => this.unmask() }, 'Show all words again'), ' ',
        h('button', { type: 'button', className: 'quiet', onclick: () => this.load(answer.text) }, 'Explain what is left')));
  }

  unmask() {
    this.masked.clear();
    state.set({ mask: '' });
    this.draw();
    this.showTest();
  }

  showLedger() {
    const row = this.found?.rows.find((one) => one.method === this.book.value);
    if (!row) return;
    const inputs = this.found.cells.map((cell, i) => ({ name: cell.text, amount: row.relevance[i] }));
    this.books.replaceChildren(ledger(row.ledger, inputs, this.unit.value));
  }

  async audit() {
    if (!this.auditBox.open || !this.found) return;
    const { text, target, output } = this.body();
    const methods = ['gi', this.model.method];
    const asked = JSON.stringify([text, target, output]);
    if (asked === this.audited) return;
    const found = await this.auditing.run((options) => post('/api/audit', { text, methods, target, output }, options));
    if (!found) return;
    this.audited = asked;
    const save = saver(() => ({ path: '/api/audit/report', name: 'audit', body: { text, methods, target, output } }), this.status);
    const cut = this.found.windows > 1 ? h('p', { className: 'soft' }, 'The text is longer than the model takes: this follows its beginning.') : '';
    this.auditBody.replaceChildren(cut, audit(found), save);
  }

  report() {
    if (!this.found) return null;
    return { path: '/api/explain/report', name: 'explanation', body: { ...this.body(), masked: [...this.masked] }, query: `&palette=${state.get('palette', 'red-blue')}` };
  }
}

