// Generated text: what a language model says, and what every token of it came from.

import { post, ready } from './api.js';
import { Batch } from './batch.js';
import { examples } from './choosing.js';
import { h, onCtrlEnter, percent, signed } from './dom.js';
import * as heat from './heat.js';
import { ledger } from './ledger.js';
import { MaskBox } from './masks.js';
import { MatrixCard } from './matrix.js';
import { chosenModel, followedModel, isMissing, missingNote, modelAsked, modelLine } from './models.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { term } from './terms.js';
import { VerdictLine } from './verdict.js';
import { View } from './view.js';

const EXAMPLES = [
  ['a capital', 'The capital of France is'],
  ['a pronoun', 'Anna gave Peter the book, because he had asked'],
  ['a list', 'Monday, Tuesday, Wednesday,'],
  ['a sum', 'Two plus two equals'],
  ['a fact, turned', 'In this story the sky is green. The colour of the sky is'],
];

const NEW = 48; // tokens that are generated at most
const BOXES = ['prompt', 'n', 'score', 'gm', 'gu', 'rather', 'chat', 'sink']; // what the address holds of them

export class GenerationView extends View {
  constructor(about) {
    super();
    this.about = about;
    this.model = chosenModel(about, 'language', 'gmodel');
    this.says = new VerdictLine();
    this.masked = new Set();
    this.tested = new MaskBox(this.status, { unmask: () => this.mask(null), unit: 'tokens' });
    this.none = isMissing(this.model);
    this.element = this.none ? missingNote(this.model, 'No language model here yet') : this.built();
  }

  built() {
    this.box = h('textarea', { id: 'prompt', rows: 2, maxlength: 4000, spellcheck: 'false' });
    onCtrlEnter(this.box, () => this.ask());
    const select = (options, act) => h('select', { onchange: act }, Object.entries(options).map(([value, said]) => h('option', { value }, said)));
    this.count = h('input', { type: 'number', min: 1, max: NEW, step: 1 });
    this.score = select({ advantage: 'logit above the mean', logit: 'logit', logprob: 'log-probability', contrast: 'logit over the runner-up' });
    this.method = select(Object.fromEntries(this.about.methods.filter((m) => !['captum', 'chance'].includes(m.group)).map((m) => [m.name, m.name === this.model.method ? `${m.name} (default)` : m.name])));
    this.unit = select({ token: 'tokens', word: 'words' });
    this.contrast = h('input', { type: 'text', maxlength: 200 });
    this.chat = h('input', { type: 'checkbox' });
    this.aside = h('input', { type: 'checkbox' });
    this.said = h('div', { className: 'said' });
    this.said.addEventListener('pointerover', (e) => this.peek(e));
    this.said.addEventListener('focusin', (e) => this.peek(e));
    heat.listen(this.said, { act: (i) => (i < this.found.prompt ? this.mask(i) : this.choose(i - this.found.prompt)), numbers: (i) => this.numbers(i) });
    this.said.addEventListener('pointerleave', () => this.colour(this.kept));
    this.books = h('div');
    this.top = h('div', { className: 'top-sources' });
    this.batch = new Batch({ body: (prompt) => ({ ...this.body(), prompt }), open: (prompt) => { this.box.value = prompt; this.ask(); this.element.scrollIntoView(); }, model: () => this.model });
    this.filled();
    return h('div', { className: 'view' },
      h('section', { className: 'card input' },
        h('h1', { className: 'heard' }, 'Explain generated text'),
        modelLine(this.about, 'language', 'gmodel', () => this.show()),
        h('label', { for: 'prompt', className: 'big' }, 'Let the model go on from here'), this.box,
        h('div', { className: 'under' }, examples('Examples', EXAMPLES, (text) => { this.box.value = text; this.ask(); }),
          h('button', { type: 'button', className: 'main', id: 'generate', onclick: () => this.ask() }, 'Generate and explain')),
        this.status.element),
      h('aside', { className: 'side', 'aria-label': 'Choices' },
        h('section', { className: 'card choices' }, h('h2', {}, 'What is explained'),
          h('label', { className: 'row' }, 'score', this.score),
          h('label', { className: 'row' }, 'rather than (another answer)', this.contrast),
          h('label', { className: 'row' }, 'method', this.method),
          h('div', { className: 'row two' }, h('label', {}, 'new tokens', this.count), h('label', {}, 'by', this.unit)),
          h('label', { className: 'check row' }, this.chat, h('span', {}, 'put it as a chat’s question')),
          h('label', { className: 'check' }, this.aside, h('span', {}, 'set the attention sink aside', h('small', {}, 'the first token, on which idle attention rests: a line of the ledger')))),
        this.from),
      this.results, this.batch.element);
  }

  // Empty cards say nothing: what an answer fills is there when there is one.
  filled() {
    this.map = new MatrixCard((number) => this.choose(number));
    this.chances = h('div', { className: 'chances' });
    this.from = h('section', { className: 'card from' }, h('h2', {}, 'Came from'), this.top, this.chances);
    this.results = h('div', { className: 'results' }, this.missing.element, this.says.element,
      h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'What it said'), saver(() => this.report(), this.status)), this.said,
        h('p', { className: 'soft hint' }, 'Point at a piece of the output, tap it, or reach it by Tab and the arrow keys: what it came from lights up. Enter keeps it. A click on what stands before it, or Enter there, masks that token.'), this.tested.element),
      h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Ledger', ' ', term('ledger', '?'))), this.books), this.map.element);
    this.from.hidden = this.results.hidden = true;
  }

  show() {
    if (this.none) return;
    const model = followedModel(this.element, this.about, 'language', 'gmodel');
    const other = model.name !== this.model.name;
    if (other) { this.model = model; this.clear(''); this.batch.clear(); }
    const fresh = this.renewed(BOXES);
    if (fresh) this.fill();
    if (fresh || other) this.method.value = state.get('gm', this.model.method);
    this.batch.show();
    if (!fresh && !other) { if (this.found) this.choose(this.wanted()); return; }
    if (this.found ? JSON.stringify(this.body()) !== this.asked && state.get('prompt') : state.get('prompt') || this.model.state === 'ready') this.ask();
    else if (this.found) this.choose(this.wanted());
    else this.status.say(`${this.model.name} is read when it is first asked, which takes a while.`);
  }

  fill() {
    this.box.value = state.get('prompt', EXAMPLES[0][1]);
    this.count.value = state.get('n', '8');
    this.score.value = state.get('score', 'advantage');
    this.unit.value = state.get('gu', 'token');
    this.contrast.value = state.get('rather', '');
    this.chat.checked = state.get('chat') === '1';
    this.aside.checked = state.get('sink') !== 'shown';
  }

  body() {
    const contrast = this.contrast.value.trim();
    return {
      prompt: this.box.value, chat: this.chat.checked, new_tokens: Number(this.count.value), method: this.method.value,
      score: contrast ? 'contrast' : this.score.value, contrast: contrast || null, unit: this.unit.value, aside: this.aside.checked,
      model: modelAsked(this.about, 'language', this.model),
    };
  }

  async ask() {
    if (!this.box.value.trim()) {
      this.latest.stop();
      this.status.say('');
      this.clear('There is no prompt: type one, or choose an example.');
      return;
    }
    const count = Number(this.count.value);
    if (!Number.isInteger(count) || count < 1 || count > NEW) { this.status.fail(`New tokens: a whole number from 1 to ${NEW}, please.`); return; }
    const body = this.body();
    this.asked = JSON.stringify(body);
    state.set({
      prompt: this.box.value, n: this.count.value === '8' ? '' : this.count.value, score: this.score.value === 'advantage' ? '' : this.score.value,
      gm: this.method.value === this.model.method ? '' : this.method.value, gu: this.unit.value === 'token' ? '' : this.unit.value,
      rather: this.contrast.value, chat: this.chat.checked ? '1' : '', sink: this.aside.checked ? '' : 'shown',
    });
    this.renewed(BOXES);
    const found = await this.latest.run(async (options) => {
      if (this.model.state !== 'ready') this.model = await ready('language', { ...options, name: this.model.name });
      return post('/api/generate', body, options);
    });
    if (!found) return;
    Object.assign(this, { found, sent: body });
    this.missing.clear(this.results);
    this.draw();
  }

  // Nothing that was found for another prompt stays on the screen.
  clear(message) {
    this.found = null;
    this.masked.clear();
    this.tested.clear();
    for (const place of [this.said, this.books, this.top]) place.replaceChildren();
    this.from.hidden = true;
    this.results.hidden = false;
    this.missing.say(this.results, message);
  }

  // Mask one token before the chosen output more or less; null takes all masks off.
  mask(number) {
    if (!this.found) return;
    if (number === null) this.masked.clear();
    else if (!this.masked.delete(number)) this.masked.add(number);
    this.spans.forEach((span, i) => {
      if (i >= this.found.prompt) return;
      span.classList.toggle('masked', this.masked.has(i));
      span.setAttribute('aria-pressed', String(this.masked.has(i)));
    });
    this.test();
  }

  test() {
    if (!this.masked.size) { this.tested.clear(); return; }
    this.tested.ask('/api/generate/mask', { ...this.sent, masked: [...this.masked], masked_for: this.kept });
  }

  draw() {
    const { found } = this;
    this.masked.clear();
    this.tested.clear();
    this.from.hidden = this.results.hidden = false;
    const part = (from, to, name, output) => h('p', { className: `said-part ${output ? 'output' : ''}` }, h('b', { className: 'soft' }, name), h('span', { className: 'words' }, found.pieces.slice(from, to).map((piece, k) => this.piece(piece, from + k, output))));
    const parts = [];
    for (let i = 0; i < found.prompt;) {
      let end = i;
      while (end < found.prompt && found.pieces[end].role === found.pieces[i].role) end += 1;
      parts.push(part(i, end, found.pieces[i].role, false));
      i = end;
    }
    this.said.replaceChildren(...parts, part(found.prompt, found.pieces.length, 'output', true));
    this.spans = [...this.said.querySelectorAll('.w')];
    this.choose(this.wanted());
  }

  wanted() {
    const at = Number(state.get('at', '0'));
    return Number.isInteger(at) && at >= 0 ? Math.min(at, this.found.rows.length - 1) : 0;
  }

  piece(piece, i, output) {
    const inner = piece.text.trimStart();
    return [piece.text.slice(0, piece.text.length - inner.length), h('span', {
      className: `w can${output ? '' : ' source'}${piece.special ? ' special' : ''}${piece.aside ? ' aside' : ''}`, 'data-i': i,
      role: 'button', tabindex: (output ? i === this.found.prompt : i === 0) ? 0 : -1, 'aria-pressed': 'false',
      title: piece.aside ? 'set aside: a line of the ledger' : undefined,
    }, inner || '␣')];
  }

  peek(event) {
    const found = event.target.closest?.('.w.can:not(.source)');
    if (found) this.colour(Number(found.dataset.i) - this.found.prompt);
  }

  choose(number) {
    if (!this.found.rows[number]) return;
    this.kept = number;
    state.set({ at: number || '' });
    this.spans.forEach((span, i) => {
      if (i < this.found.prompt) return;
      span.setAttribute('aria-pressed', String(i === this.found.prompt + number));
      span.tabIndex = i === this.found.prompt + number ? 0 : -1;
    });
    this.colour(number);
    this.map.show(this.found, number);
    const row = this.found.rows[number];
    this.says.show(row.verdict);
    this.test();
    this.books.replaceChildren(ledger(row.ledger, this.sources(row), this.found.unit));
  }

  sources(row) {
    return row.relevance.map((amount, i) => ({ name: this.found.pieces[i].text.trim() || '␣', amount })).filter((_, i) => !this.found.pieces[i].aside);
  }

  colour(number) {
    const row = this.found?.rows[number];
    if (!row) return;
    this.now = number;
    const scale = Math.max(...row.relevance.map(Math.abs), 0);
    this.spans.forEach((span, i) => {
      const { kind, share } = heat.look(row.relevance[i] ?? 0, scale);
      span.classList.toggle('add', kind === 'add');
      span.classList.toggle('take', kind === 'take');
      span.classList.toggle('now', i === this.found.prompt + number);
      span.style.setProperty('--o', share.toFixed(3));
    });
    this.likeliest(row);
    const best = this.sources(row).sort((a, b) => Math.abs(b.amount) - Math.abs(a.amount)).slice(0, 6);
    this.top.replaceChildren(h('p', {}, h('b', {}, row.text), h('span', { className: 'soft' }, ` ${row.target.trim() === row.text.trim() ? '' : `${row.target} `}${signed(row.score)} · probability ${row.probability.toFixed(3)}`)),
      h('table', { className: 'numbers' }, h('tbody', {}, best.map((one) => h('tr', {}, h('th', { scope: 'row' }, one.name), h('td', {}, signed(one.amount, row.score)))))));
  }

  // The likeliest tokens in the place of one of the output, its own in bold.
  likeliest(row) {
    const most = row.alternatives[0]?.probability || 1;
    const own = row.text.trim();
    this.chances.replaceChildren(...(row.alternatives.length ? [h('h3', {}, this.found.unit === 'token' ? 'Likeliest here' : `Likeliest as the ${this.found.unit}’s first token`),
      h('ul', { className: 'classes' }, row.alternatives.map((one) => h('li', { className: one.text.trim() === own ? 'best' : '' }, h('span', { className: 'label' }, one.text), h('span', { className: 'share' }, percent(one.probability)),
        h('span', { className: 'meter', 'aria-hidden': 'true' }, h('i', { className: 'is', style: { width: `${(one.probability / most) * 100}%` } })))))] : []));
  }

  numbers(i) {
    const row = this.found.rows[this.now];
    return i < row.relevance.length ? [[`for ${row.text}`, signed(row.relevance[i])]] : null;
  }

  report() {
    return this.found ? { path: '/api/generate/report', name: 'generation', body: { ...this.sent, masked: [...this.masked], masked_for: this.kept }, query: `&palette=${state.get('palette', 'red-blue')}` } : null;
  }
}
