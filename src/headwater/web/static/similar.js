// Two texts: side by side with lines between their words; or a query and passages. Both by one sentence encoder.

import { Latest, post, ready } from './api.js';
import { examples } from './choosing.js';
import { counted, h, onCtrlEnter } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { chosenModel, followedModel, isMissing, missingNote, modelAsked, modelLine } from './models.js';
import { RankPart } from './ranking.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { onlyFailures } from './status.js';
import { shown } from './sums.js';
import { term } from './terms.js';
import { VerdictLine } from './verdict.js';
import { View } from './view.js';
import { WordLines } from './word_lines.js';

const RANKS = ['2', '8', '16', '64', 'all'];
const NAMED = { 2: '2: fastest; pairs in the order of what is lost without both', all: 'all: every pair exact, slowest' };
const USUAL = '16';
const BOXES = ['ta', 'tb', 'tr']; // what the address holds of them
const LONG = 4000; // characters of one text

const EXAMPLES = [
  ['a river', { first: 'What river flows through the capital of France?', second: 'Paris, the French capital, lies on the banks of the Seine.' }],
  ['a mended bicycle', { first: 'She repaired the old bicycle in the garage.', second: 'The bike was broken, so she fixed it at home.' }],
  ['two banks', { first: 'The bank raised its interest rates again.', second: 'We sat on the bank and watched the river.' }],
];

// What both parts have in common: the encoder, once read, and a part of the page for each way to ask.
export class SimilarView {
  constructor(about) {
    this.about = about;
    this.model = chosenModel(about, 'sentence', 'tmodel');
    this.none = isMissing(this.model);
    if (this.none) {
      this.element = missingNote(this.model, 'No sentence encoder here yet');
      return;
    }
    this.parts = { pair: new PairPart(this), rank: new RankPart(this) };
    this.vector = h('p', { className: 'which' }, this.model.vector);
    this.choice = h('div', { className: 'tabs ways', role: 'group', 'aria-label': 'What is compared' },
      [['pair', 'Two texts'], ['rank', 'A query and passages']].map(([name, said]) => h('button', { type: 'button', 'data-way': name, onclick: () => { state.set({ tm: name === 'pair' ? '' : name }); this.show(); } }, said)));
    this.element = h('div', { className: 'similar-view' }, h('h1', { className: 'heard' }, 'Compare texts'),
      modelLine(about, 'sentence', 'tmodel', () => this.show()), this.vector, this.choice,
      Object.values(this.parts).map((part) => part.element));
  }

  now() { return this.parts[state.get('tm') === 'rank' ? 'rank' : 'pair']; }

  show() {
    if (this.none) return;
    const model = followedModel(this.element, this.about, 'sentence', 'tmodel');
    if (model.name !== this.model.name) {
      this.model = model;
      this.vector.textContent = model.vector;
      Object.values(this.parts).forEach((part) => part.forget());
    }
    const now = this.now();
    for (const button of this.choice.children) button.setAttribute('aria-pressed', String(this.parts[button.dataset.way] === now));
    Object.values(this.parts).forEach((part) => { part.element.hidden = part !== now; });
    now.show();
  }

  // A question to the encoder, which is read first where it has not been.
  async post(path, body, options) {
    if (this.model.state !== 'ready') this.model = await ready('sentence', { ...options, name: this.model.name });
    this.vector.textContent = this.model.vector;
    return post(path, { ...body, model: modelAsked(this.about, 'sentence', this.model) }, options);
  }
}

class PairPart extends View {
  constructor(view) {
    super();
    this.view = view;
    this.leaving = new Latest(onlyFailures((message) => this.refuse(message)));
    this.says = new VerdictLine();
    this.words = new WordLines((side, i) => this.leave(side, i));
    this.element = this.built();
  }

  built() {
    const box = (id) => onCtrlEnter(h('textarea', { id, rows: 3, maxlength: LONG, spellcheck: 'false' }), () => this.ask());
    [this.first, this.second] = [box('first-text'), box('second-text')];
    this.rank = h('select', { id: 'directions', onchange: () => this.ask([...this.words.left]) }, RANKS.map((one) => h('option', { value: one }, NAMED[one] ?? `${one}: ${counted(one, 'backward pass')} per text`)));
    this.cost = h('p', { className: 'soft', id: 'cost' });
    this.tested = h('div', { className: 'test', 'aria-live': 'polite' });
    this.book = h('div');
    this.results = h('div', { className: 'results', hidden: true }, this.missing.element, this.says.element,
      h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Words and lines'), saver(() => this.report(), this.status)),
        this.words.element,
        h('p', { className: 'soft hint' }, 'Point at a word, or reach it by Tab and the arrow keys: only its lines stay. A click, or Enter, leaves it out, and the model reads the texts again.'), this.tested, heat.key(h('span', { className: 'soft' }, ' a line is as thick as its pair is strong; dashed: it takes away'))),
      h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'The sum ', term('ledger', '?'))), this.cost, this.book));
    return h('div', { className: 'view wide-view' },
      h('section', { className: 'card input' },
        h('div', { className: 'row two' }, h('label', {}, 'First text (a)', this.first), h('label', {}, 'Second text (b)', this.second)),
        h('div', { className: 'row' }, h('label', {}, 'Directions along which the vectors are explained', this.rank)),
        h('div', { className: 'under' }, examples('Examples', EXAMPLES, (one) => this.take(one)),
          h('button', { type: 'button', className: 'main', id: 'compare', onclick: () => this.ask() }, 'Compare')),
        this.status.element),
      this.results);
  }

  take({ first, second }) {
    this.first.value = first;
    this.second.value = second;
    this.ask();
  }

  show() {
    const fresh = this.renewed(BOXES);
    if (fresh) {
      this.first.value = state.get('ta', EXAMPLES[0][1].first);
      this.second.value = state.get('tb', EXAMPLES[0][1].second);
      this.rank.value = RANKS.includes(state.get('tr', USUAL)) ? state.get('tr', USUAL) : USUAL;
    }
    if (!fresh && !this.forgotten) { if (this.found && state.get('tl') !== [...this.words.left].join('|')) this.draw(state.list('tl')); return; }
    if (!state.get('ta')) { this.status.say(`${this.view.model.name} compares when it is asked.`); return; }
    if (!this.found || JSON.stringify(this.body()) !== this.asked) this.ask(state.list('tl'));
  }

  body() {
    return { first: this.first.value, second: this.second.value, rank: this.rank.value === 'all' ? null : Number(this.rank.value) };
  }

  // `left` are words that a link leaves out: a3, b5.
  async ask(left = []) {
    const empty = [[this.first, 'first'], [this.second, 'second']].find(([box]) => !box.value.trim());
    if (empty) { this.latest.stop(); this.status.say(''); this.clear(`The ${empty[1]} text is empty: type one, or choose an example.`); return; }
    const body = this.body();
    Object.assign(this, { asked: JSON.stringify(body), forgotten: false });
    state.set({ ta: body.first, tb: body.second, tr: this.rank.value === USUAL ? '' : this.rank.value, tl: left });
    this.renewed(BOXES);
    const found = await this.latest.run((options) => this.view.post('/api/similar', body, options));
    if (!found) return;
    Object.assign(this, { found, sent: body });
    this.missing.clear(this.results);
    this.draw(left);
  }

  // Nothing that was found for other texts stays on the screen.
  clear(message) {
    this.found = null;
    this.leaving.stop();
    this.words.clear();
    for (const place of [this.book, this.tested, this.cost]) place.replaceChildren();
    this.results.hidden = false;
    this.missing.say(this.results, message);
  }

  draw(left) {
    const { found } = this;
    this.results.hidden = false;
    this.says.show(found.verdict);
    this.words.set(found);
    const seconds = found.seconds < 10 ? found.seconds.toFixed(2) : found.seconds.toFixed(0);
    const exact = found.rank === found.dimensions;
    this.cost.textContent = `${exact ? `All ${found.dimensions} directions` : `${found.rank} of ${found.dimensions} directions`}: ${counted(found.rank, 'backward pass')} per text, in batches, took ${seconds} seconds. ${exact ? 'Every number is exact.' : 'The score and what each word does in all are exact. Single pairs, and so the first line of the sum, are cut to these directions.'}`;
    const pairs = found.matrix.flatMap((line, i) => line.map((amount, j) => ({ name: `${found.first.words[i].text} – ${found.second.words[j].text}`, amount })));
    this.book.replaceChildren(ledger(found.ledger, pairs, 'pair'));
    left.forEach((one) => { const known = /^([ab])(\d{1,4})$/.exec(one); if (known && this.words.can(known[1], Number(known[2]))) this.words.left.add(one); });
    this.without();
  }

  leave(side, i) {
    const name = side + i;
    if (!this.words.left.delete(name)) this.words.left.add(name);
    this.without();
  }

  leftOut() {
    const numbers = (side) => [...this.words.left].filter((one) => one[0] === side).map((one) => Number(one.slice(1))).sort((a, b) => a - b);
    return { left_first: numbers('a'), left_second: numbers('b') };
  }

  async without() {
    this.words.mark();
    state.set({ tl: [...this.words.left] });
    if (!this.words.left.size) { this.leaving.stop(); this.tested.replaceChildren(); return; }
    this.tested.replaceChildren(h('p', { className: 'soft' }, 'reading the texts again …'));
    const moved = await this.leaving.run((options) => this.view.post('/api/similar/without', { ...this.sent, ...this.leftOut() }, options));
    if (moved) this.test(moved);
  }

  // What leaving words out did, beside what the explanation had given to them.
  test(moved) {
    const change = moved.after - moved.before;
    this.tested.replaceChildren(
      h('h3', {}, 'Put to the test'),
      h('p', { className: 'found' }, 'Without ', h('strong', {}, moved.name), ` the ${this.found.measure} is `, h('b', { className: 'change' }, moved.after.toFixed(3)), `, not ${moved.before.toFixed(3)}: `, h('b', { className: 'change' }, shown(Math.round(1000 * moved.after) / 1000 - Math.round(1000 * moved.before) / 1000, 3)), '.'),
      h('p', { className: 'soft' }, `The explanation had given ${shown(moved.claim, 3)} to ${this.words.left.size > 1 ? 'them' : 'it'}${Math.sign(moved.claim) === -Math.sign(change) ? '' : ', the other sign than what happened'}. Read again: “${moved.first}” and “${moved.second}”`),
      this.back());
  }

  refuse(message) { this.tested.replaceChildren(h('p', { className: 'found' }, message), this.back()); }

  back() { return h('p', {}, h('button', { type: 'button', className: 'quiet', onclick: () => { this.words.left.clear(); this.without(); } }, 'Put all words back')); }

  report() {
    return this.found ? { path: '/api/similar/report', name: 'similar', body: { ...this.sent, ...this.leftOut(), model: modelAsked(this.view.about, 'sentence', this.view.model) }, query: `&palette=${state.get('palette', 'red-blue')}` } : null;
  }
}
