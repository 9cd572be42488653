// Whole answers: documents on one side, the answer on the other, and which sentence rests on which.

import { post, ready } from './api.js';
import { examples } from './choosing.js';
import { DocumentList } from './documents.js';
import { h, onCtrlEnter, percent, signed } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { drawLines } from './lines.js';
import { chosenModel, followedModel, isMissing, missingNote, modelAsked, modelLine } from './models.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { term } from './terms.js';
import { phrases } from './verdict.js';
import { View } from './view.js';

const NEW = 120; // tokens that an answer has at most
const LETTERS = 40_000; // of all documents together
const BOXES = ['question', 'docs', 'given', 'an']; // what the address holds of them

const EXAMPLES = [
  ['a tower and a fruit', {
    question: 'When was the Eiffel Tower finished?',
    documents: [
      { name: 'tower', text: 'The Eiffel Tower stands on the Champ de Mars in Paris. It was finished in 1889.' },
      { name: 'fruit', text: 'Bananas are yellow. They grow in warm countries.' }],
  }],
  ['who cannot come', {
    question: 'Who cannot come to the meeting, and why?',
    documents: [
      { name: 'agenda', text: 'The meeting is on Tuesday at ten. The room has changed.' },
      { name: 'mail', text: 'Anna brings the minutes. Peter cannot come, because he is in Lisbon.' }],
  }],
];

export class AnswerView extends View {
  constructor(about) {
    super();
    this.about = about;
    this.model = chosenModel(about, 'language', 'gmodel');
    this.checking = this.asker();
    this.leaving = this.asker();
    this.checking.failed = () => this.verdicts.forEach((one) => { one.textContent = 'What happens without its sources could not be found out.'; });
    this.leaving.failed = () => { this.unread = 'The model could not read the answer again.'; this.test(); };
    this.leftOut = new Set();
    this.none = isMissing(this.model);
    this.element = this.none ? missingNote(this.model, 'No language model here yet') : this.built();
    addEventListener('resize', () => { if (this.found && !this.element.hidden) this.lines(); });
  }

  built() {
    this.box = h('textarea', { id: 'question', rows: 2, maxlength: 4000, spellcheck: 'false' });
    onCtrlEnter(this.box, () => this.ask());
    this.given = h('textarea', { id: 'given-answer', rows: 2, maxlength: 4000, spellcheck: 'false', placeholder: 'the model answers by itself' });
    this.count = h('input', { type: 'number', min: 1, max: NEW, step: 1 });
    this.documents = new DocumentList(this.status, () => this.status.say(''));
    this.docs = h('div', { className: 'answer-documents' });
    this.said = h('ol', { className: 'answer-sentences' });
    this.wires = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    this.wires.setAttribute('class', 'answer-lines');
    this.wires.setAttribute('aria-hidden', 'true');
    this.pair = h('div', { className: 'answer-pair' }, h('section', { 'aria-label': 'Documents' }, this.docs), h('section', { 'aria-label': 'Answer', className: 'answer-said' }, h('h3', {}, 'Answer'), this.said), this.wires);
    this.tested = h('div', { className: 'test', 'aria-live': 'polite' });
    this.panel = h('div');
    this.walk();
    this.results = h('div', { className: 'results' }, this.missing.element,
      h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Answer and sources'), saver(() => this.report(), this.status, { html: 'Page', json: 'JSON' })), this.pair,
        h('p', { className: 'soft hint' }, 'Point at a sentence of the answer, tap it, or reach it by Tab and the arrow keys: its sources light up. Enter keeps it. A click on a source, or Enter there, leaves it out, and the model reads the same answer again.'), this.tested),
      h('section', { className: 'card' }, this.panel));
    this.results.hidden = true;
    return h('div', { className: 'view wide-view answer-view' },
      h('section', { className: 'card input' },
        h('h1', { className: 'heard' }, 'Explain a whole answer'),
        modelLine(this.about, 'language', 'gmodel', () => this.show()),
        h('label', { for: 'question', className: 'big' }, 'Ask about these documents'), this.box,
        h('div', { className: 'row' }, this.documents.element),
        h('div', { className: 'row answer-choices' }, h('label', {}, 'explain this answer instead of its own', this.given), h('label', {}, 'new tokens', this.count)),
        h('div', { className: 'under' }, examples('Examples', EXAMPLES, (one) => this.take(one)),
          h('button', { type: 'button', className: 'main', id: 'answer', onclick: () => this.ask() }, 'Answer and explain')),
        this.status.element),
      this.results);
  }

  take({ question, documents, answer = '' }) {
    this.box.value = question;
    this.given.value = answer;
    this.documents.set(documents);
    this.ask();
  }

  show() {
    if (this.none) return;
    const model = followedModel(this.element, this.about, 'language', 'gmodel');
    const other = model.name !== this.model.name;
    if (other) { this.model = model; this.clear(''); }
    const fresh = this.renewed(BOXES);
    if (fresh) {
      this.box.value = state.get('question', EXAMPLES[0][1].question);
      this.given.value = state.get('given', '');
      this.count.value = state.get('an', '60');
      this.documents.set(this.kept());
    }
    const left = state.list('al');
    if (!fresh && !other) {
      if (!this.found) return;
      if (left.join('|') !== [...this.leftOut].join('|')) this.restore(left);
      this.lines();
      return;
    }
    if (!state.get('question')) { this.status.say(`${this.model.name} answers when it is asked.`); return; }
    if (!this.found || JSON.stringify(this.body()) !== this.asked) this.ask(left);
    else this.lines();
  }

  // The documents of the address. What somebody else wrote there may be anything.
  kept() {
    try {
      const found = JSON.parse(state.get('docs', ''));
      return found.map(([name, text]) => ({ name: String(name), text: String(text) }));
    } catch {
      return EXAMPLES[0][1].documents;
    }
  }

  body() {
    return {
      question: this.box.value, documents: this.documents.values(), answer: this.given.value.trim() || null,
      new_tokens: Number(this.count.value), model: modelAsked(this.about, 'language', this.model),
    };
  }

  // `left` are sources that a link leaves out: "0,1" is the second sentence of the first document.
  async ask(left = []) {
    if (!this.box.value.trim()) { this.latest.stop(); this.status.say(''); this.clear('There is no question: type one, or choose an example.'); return; }
    const count = Number(this.count.value);
    if (!Number.isInteger(count) || count < 1 || count > NEW) { this.status.fail(`New tokens: a whole number from 1 to ${NEW}, please.`); return; }
    const letters = this.documents.values().reduce((sum, { text }) => sum + [...text].length, 0);
    if (letters > LETTERS) { this.status.fail(`All documents together may have ${LETTERS.toLocaleString('en')} characters, and these have ${letters.toLocaleString('en')}.`); return; }
    this.asked = JSON.stringify(this.body());
    state.set({ question: this.box.value, docs: JSON.stringify(this.documents.values().map(({ name, text }) => [name, text])), given: this.given.value, an: this.count.value === '60' ? '' : this.count.value, al: left });
    this.renewed(BOXES);
    this.checking.stop();
    const body = this.body();
    const found = await this.latest.run(async (options) => {
      if (this.model.state !== 'ready') this.model = await ready('language', { ...options, name: this.model.name });
      return post('/api/answer', body, options);
    });
    if (!found) return;
    Object.assign(this, { found, sent: body, checked: null });
    this.missing.clear(this.results);
    this.draw();
    if (left.length) this.restore(left);
    const checked = await this.checking.run((options) => post('/api/answer/sources', body, options));
    if (!checked || this.sent !== body) return;
    this.checked = checked;
    checked.sentences.forEach((one, n) => this.verdicts[n].replaceChildren(...phrases(one.verdict), '.'));
    this.light(this.shown);
  }

  // Nothing that was found for another question stays on the screen.
  clear(message) {
    Object.assign(this, { found: null, checked: null });
    this.checking.stop();
    this.leaving.stop();
    this.leftOut.clear();
    for (const place of [this.docs, this.said, this.wires, this.panel, this.tested]) place.replaceChildren();
    this.results.hidden = false;
    this.missing.say(this.results, message);
  }

  draw() {
    this.leftOut.clear();
    this.tested.replaceChildren();
    this.results.hidden = false;
    let first = true;
    this.docs.replaceChildren(...this.found.documents.map((one, d) => h('div', { className: 'answer-document' }, h('h3', {}, one.name),
      h('p', {}, one.sentences.length ? one.sentences.map((text, s) => {
        const made = h('span', { className: 'w can source', role: 'button', tabindex: first ? 0 : -1, 'aria-pressed': 'false', 'data-source': `${d},${s}` }, text);
        first = false;
        return [made, ' '];
      }) : h('span', { className: 'soft' }, 'empty')))));
    if (!this.found.documents.length) this.docs.replaceChildren(h('p', { className: 'soft' }, 'No documents were given.'));
    this.said.replaceChildren(...this.found.sentences.map((one, n) => h('li', {}, h('span', { className: 'answer-sentence', role: 'button', tabindex: n ? -1 : 0, 'aria-pressed': 'false', 'aria-describedby': `answer-verdict-${n}`, 'data-n': n }, one.text),
      h('p', { className: 'answer-verdict soft', id: `answer-verdict-${n}`, 'aria-live': 'polite' }, this.found.documents.length ? 'being read again without its sources …' : ''))));
    this.verdicts = [...this.said.querySelectorAll('.answer-verdict')];
    this.sources = [...this.docs.querySelectorAll('.source')];
    this.sentences = [...this.said.querySelectorAll('.answer-sentence')];
    const at = Number(state.get('sat', '0'));
    this.keep(Number.isInteger(at) && at >= 0 ? Math.min(at, this.sentences.length - 1) : 0);
  }

  // Pointer, touch and keyboard for the sentences of both sides.
  walk() {
    const number = (event) => { const at = event.target.closest?.('.answer-sentence'); return at ? Number(at.dataset.n) : null; };
    this.said.addEventListener('pointerover', (e) => { const n = number(e); if (n !== null) this.light(n); });
    this.said.addEventListener('focusin', (e) => { const n = number(e); if (n !== null) this.light(n); });
    this.said.addEventListener('pointerleave', () => this.light(this.held));
    this.said.addEventListener('click', (e) => { const n = number(e); if (n !== null) this.keep(n); });
    this.said.addEventListener('keydown', (e) => this.step(e, () => this.sentences, (n) => this.keep(n), (n) => this.keep(n)));
    this.docs.addEventListener('click', (e) => { const at = e.target.closest?.('.source'); if (at) this.leave(at); });
    this.docs.addEventListener('keydown', (e) => this.step(e, () => this.sources, (n) => this.leave(this.sources[n]), () => {}));
  }

  step(event, items, act, move) {
    const all = items();
    const here = all.indexOf(event.target);
    if (here < 0) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = event.key === 'Home' ? 0 : event.key === 'End' ? all.length - 1 : here + (step ?? 0);
    if (event.key === 'Enter' || event.key === ' ') act(here);
    else if (next !== here && all[next]) { all.forEach((one, i) => { one.tabIndex = i === next ? 0 : -1; }); move(next); all[next].focus(); } else if (step === undefined) return;
    event.preventDefault();
  }

  keep(n) {
    this.held = n;
    state.set({ sat: n || '' });
    this.sentences.forEach((one, i) => { one.setAttribute('aria-pressed', String(i === n)); one.tabIndex = i === n ? 0 : -1; });
    this.light(n);
  }

  // The sources of one sentence in colour, with lines to them; the verdict and the numbers beside it.
  light(n) {
    if (!this.found) return;
    this.shown = n;
    const values = this.found.sentences[n].sources.flat();
    const scale = Math.max(...values.map(Math.abs), 0);
    const total = values.reduce((sum, value) => sum + Math.max(value, 0), 0) || 1;
    this.shares = values.map((value) => Math.max(value, 0) / total);
    this.sources.forEach((source, i) => {
      const { kind, share } = heat.look(values[i], scale);
      source.classList.toggle('add', kind === 'add');
      source.classList.toggle('take', kind === 'take');
      source.style.setProperty('--o', share.toFixed(3));
      source.setAttribute('aria-label', `${source.textContent} ${values[i] > 0 ? `${percent(this.shares[i])} of what documents give to sentence ${n + 1}` : `takes from sentence ${n + 1}`}${this.leftOut.has(source.dataset.source) ? ', left out' : ''}`);
    });
    this.sentences.forEach((one, i) => one.classList.toggle('now', i === n));
    this.lines();
    this.tell(n);
    this.test();
  }

  lines() {
    drawLines(this.pair, this.wires, this.sentences[this.shown], this.sources.map((element, i) => ({ element, share: this.shares[i] })));
  }

  tell(n) {
    const one = this.found.sentences[n];
    const checked = this.checked?.sentences[n];
    const cited = checked?.citations ?? [];
    const size = Math.max(...one.roles.map(({ amount }) => Math.abs(amount)), 0);
    this.panel.replaceChildren(
      cited.length ? h('table', { className: 'numbers answer-sources' }, h('caption', {}, 'Its sources, each left out once'),
        h('thead', {}, h('tr', {}, ['source', 'share', 'without it', 'sure'].map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, cited.map((source) => h('tr', {}, h('th', { scope: 'row' }, source.name, h('small', {}, source.text)), h('td', {}, percent(source.share)), h('td', { className: 'change' }, source.change), h('td', {}, source.sure === null ? '' : percent(source.sure)))))) : '',
      h('table', { className: 'numbers' }, h('caption', {}, 'Whose words gave what'), h('tbody', {}, one.roles.map(({ name, amount }) => h('tr', {}, h('th', { scope: 'row' }, name === 'output' ? 'its own words before' : name), h('td', {}, signed(amount, size)))))),
      h('div', { className: 'headed' }, h('h3', {}, 'Ledger', ' ', term('ledger', '?'))), ledger(one.ledger, one.roles, 'token'));
  }

  leave(source) {
    const key = source.dataset.source;
    this.restore(this.leftOut.has(key) ? [...this.leftOut].filter((one) => one !== key) : [...this.leftOut, key]);
  }

  // Leaves out these sources and no others; what names none is passed over.
  restore(left) {
    const known = new Set(this.sources.map((one) => one.dataset.source));
    this.leftOut = new Set(left.filter((one) => known.has(one)));
    state.set({ al: [...this.leftOut] });
    this.sources.forEach((one) => {
      one.classList.toggle('masked', this.leftOut.has(one.dataset.source));
      one.setAttribute('aria-pressed', String(this.leftOut.has(one.dataset.source)));
    });
    this.without();
  }

  missingSources() {
    return [...this.leftOut].map((key) => key.split(',').map(Number)).map(([document, sentence]) => ({ document, sentence }));
  }

  async without() {
    this.moved = this.unread = null;
    this.test();
    if (!this.leftOut.size) { this.leaving.stop(); return; }
    const moved = await this.leaving.run((options) => post('/api/answer/without', { ...this.sent, left_out: this.missingSources() }, options));
    if (!moved) return;
    this.moved = moved;
    this.test();
  }

  // What leaving sources out did to the sentence that is lit up, and to the whole answer.
  test() {
    if (!this.leftOut.size) { this.tested.replaceChildren(); return; }
    const back = h('p', {}, h('button', { type: 'button', className: 'quiet', onclick: () => this.restore([]) }, 'Put all sources back'));
    if (!this.moved) { this.tested.replaceChildren(h('p', { className: 'soft' }, this.unread ?? 'reading the same answer again …'), this.unread ? back : ''); return; }
    this.tested.replaceChildren(
      h('h3', {}, 'Put to the test'),
      h('p', { className: 'found' }, `Sentence ${this.shown + 1} of the answer without `, h('strong', {}, this.moved.name), ': ', h('b', { className: 'change' }, this.moved.sentences[this.shown])),
      h('p', { className: 'soft' }, `The whole answer: ${this.moved.change}`),
      back);
  }

  repaint() { if (this.found) this.lines(); }

  report() {
    return this.found ? { path: '/api/answer/report', name: 'answer', body: { ...this.sent, left_out: this.missingSources() }, query: `&palette=${state.get('palette', 'red-blue')}` } : null;
  }
}
