// A query and passages: their order, the words of each, and why one stands above another.

import { Latest } from './api.js';
import { examples } from './choosing.js';
import { counted, h, onCtrlEnter } from './dom.js';
import * as heat from './heat.js';
import { modelAsked } from './models.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { onlyFailures } from './status.js';
import { minus, placesFor, roundToSum, shown } from './sums.js';
import { View } from './view.js';

const LONG = 4000; // characters of a query or a passage
const PASSAGES = 1000;
const BOXES = ['tq', 'tp']; // what the address holds of them
const FIRST = 10; // passages that are shown at once
const MORE = 20;
const WORDS = 50; // passages that are shown with their words

const EXAMPLES = [
  ['a river', {
    query: 'What river flows through the capital of France?',
    passages: ['Paris, the French capital, lies on the banks of the Seine.', 'The Rhine flows through Cologne and Basel.', 'France is known for its cheese and wine.', 'Berlin is the capital of Germany.', 'Rivers carry water to the sea.'],
  }],
  ['a broken printer', {
    query: 'The printer does not print in colour',
    passages: ['Replace the colour cartridge when pages come out grey.', 'How to connect a scanner to your computer.', 'The office is closed on Sunday.', 'Choose “colour” in the dialog before you print.', 'Our posters are printed on heavy paper.'],
  }],
];

export class RankPart extends View {
  constructor(view) {
    super();
    this.view = view;
    this.asking = new Latest(onlyFailures((message) => this.why.replaceChildren(h('p', { className: 'found' }, message))));
    this.count = FIRST;
    this.element = this.built();
  }

  built() {
    const keys = (made) => onCtrlEnter(made, () => this.ask());
    this.query = keys(h('textarea', { id: 'query', rows: 2, maxlength: LONG, spellcheck: 'false' }));
    this.passages = keys(h('textarea', { id: 'passages', rows: 6, spellcheck: 'false' }));
    this.file = h('input', { type: 'file', accept: '.txt,.md,.csv,text/plain', className: 'heard', tabindex: -1, 'aria-hidden': 'true', onchange: () => this.read() });
    this.list = h('ol', { className: 'ranked' });
    this.more = h('button', { type: 'button', className: 'quiet', id: 'more-passages', onclick: () => { this.count += MORE; this.ask(true); } });
    [this.above, this.below] = ['above', 'below'].map((id) => h('select', { id, onchange: () => { state.set({ tw: `${this.above.value},${this.below.value}` }); this.compare(); } }));
    this.why = h('div', { 'aria-live': 'polite' });
    this.whyCard = h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'Why this above that?')),
      h('div', { className: 'asked why-asked' }, h('label', {}, 'Why is', this.above), h('label', {}, 'above', this.below)), this.why);
    this.results = h('div', { className: 'results', hidden: true }, this.missing.element,
      h('section', { className: 'card' }, h('div', { className: 'headed' }, h('h2', {}, 'The order'), saver(() => this.report(), this.status)), this.list, h('p', {}, this.more),
        heat.key(h('span', { className: 'soft' }, ' one scale for all passages'))),
      this.whyCard);
    return h('div', { className: 'view wide-view' },
      h('section', { className: 'card input' },
        h('label', { for: 'query', className: 'big' }, 'Query'), this.query,
        h('div', { className: 'row' }, h('label', {}, 'Passages, one per line', this.passages)),
        h('div', { className: 'row' }, h('div', { className: 'examples' }, h('button', { type: 'button', className: 'quiet small', onclick: () => this.file.click() }, 'Open a text file …'), this.file)),
        h('div', { className: 'under' }, examples('Examples', EXAMPLES, (one) => this.take(one)),
          h('button', { type: 'button', className: 'main', id: 'rank', onclick: () => this.ask() }, 'Rank')),
        this.status.element),
      this.results);
  }

  take({ query, passages }) {
    this.query.value = query;
    this.passages.value = passages.join('\n');
    this.ask();
  }

  async read() {
    const [file] = this.file.files;
    this.file.value = '';
    if (!file) return;
    const text = await file.text();
    if (text.includes('\u0000')) { this.status.fail(`${file.name} is no text.`); return; }
    this.passages.value = text.trim();
    this.status.say(`${file.name}: ${counted(this.lines().length, 'passage')}.`);
  }

  show() {
    const fresh = this.renewed(BOXES);
    if (fresh) {
      this.query.value = state.get('tq', EXAMPLES[0][1].query);
      this.passages.value = state.get('tp', EXAMPLES[0][1].passages.join('\n'));
    }
    if (!fresh && !this.forgotten) {
      if (this.found && state.get('tw', '0,1') !== `${this.above.value},${this.below.value}`) { this.draw(); this.compare(); }
      return;
    }
    if (!state.get('tq')) { this.status.say(`${this.view.model.name} ranks when it is asked.`); return; }
    if (!this.found || JSON.stringify(this.body()) !== this.asked) this.ask();
  }

  lines() { return this.passages.value.split('\n').map((line) => line.trim()).filter(Boolean); }

  body() { return { query: this.query.value, passages: this.lines() }; }

  // What is wrong with what stands there; nothing where it can be asked.
  wrong() {
    const lines = this.lines();
    if (!this.query.value.trim()) return 'There is no query: type one, or choose an example.';
    if (!lines.length) return 'There are no passages: type some, one per line, or open a text file.';
    if (lines.length > PASSAGES) return `At most ${PASSAGES.toLocaleString('en')} passages are ranked here, and there are ${lines.length.toLocaleString('en')}. The command “headwater rank” takes more.`;
    const long = lines.findIndex((line) => line.length > LONG);
    return long < 0 ? '' : `Passage ${long + 1} has ${lines[long].length.toLocaleString('en')} characters, and one may have ${LONG.toLocaleString('en')}.`;
  }

  async ask(again = false) {
    const wrong = this.wrong();
    if (wrong) { this.latest.stop(); this.status.say(''); this.clear(wrong); return; }
    const body = this.body();
    if (!again && JSON.stringify(body) !== this.asked) { this.count = FIRST; if (this.asked) state.set({ tw: '' }); }
    Object.assign(this, { asked: JSON.stringify(body), forgotten: false });
    state.set({ tq: body.query, tp: body.passages.join('\n') });
    this.renewed(BOXES);
    const places = [...Array(Math.min(this.count, WORDS, body.passages.length)).keys()];
    const found = await this.latest.run((options) => this.view.post('/api/similar/rank', { ...body, places }, options));
    if (!found) return;
    Object.assign(this, { found, sent: { ...body, places } });
    this.missing.clear(this.results);
    this.results.hidden = false;
    this.draw();
    await this.compare();
  }

  clear(message) {
    this.found = null;
    this.asking.stop();
    for (const place of [this.list, this.why]) place.replaceChildren();
    this.results.hidden = false;
    this.missing.say(this.results, message);
  }

  draw() {
    const { passages } = this.found;
    const some = passages.slice(0, this.count);
    const scale = Math.max(...some.flatMap((one) => (one.words ?? []).map((word) => Math.abs(word.relevance))), 0);
    this.list.replaceChildren(...some.map((one) => h('li', {},
      h('span', { className: 'place' }, String(one.place + 1)), h('b', { className: 'change' }, shown(one.score, 3)),
      one.words ? coloured(one.words, scale, `passage ${one.place + 1}`) : h('p', { className: 'words' }, one.text),
      one.place + 1 < passages.length ? h('button', { type: 'button', className: 'quiet small', 'data-why': one.place, 'aria-label': `Why is ${one.place + 1} above ${one.place + 2}?`, onclick: () => this.choose(one.place, one.place + 1) }, 'why above the next?') : null)));
    this.more.hidden = passages.length <= this.count;
    this.more.textContent = `Show ${Math.min(MORE, passages.length - this.count)} more of ${passages.length.toLocaleString('en')}`;
    this.whyCard.hidden = passages.length < 2;
    const options = () => passages.map((one) => h('option', { value: one.place }, `${one.place + 1}: ${one.text.length > 60 ? `${one.text.slice(0, 60)}…` : one.text}`));
    const [above, below] = state.get('tw', '0,1').split(',').map(Number);
    this.above.replaceChildren(...options());
    this.below.replaceChildren(...options());
    this.above.value = passages[above] ? above : 0;
    this.below.value = passages[below] ? below : 1;
  }

  choose(above, below) {
    this.above.value = above;
    this.below.value = below;
    state.set({ tw: `${above},${below}` });
    this.compare();
    this.whyCard.scrollIntoView({ block: 'nearest' });
  }

  places() { return { above: Number(this.above.value), below: Number(this.below.value) }; }

  async compare() {
    if (this.found.passages.length < 2) return;
    if (this.above.value === this.below.value) { this.asking.stop(); this.why.replaceChildren(h('p', { className: 'found' }, 'A passage does not stand above itself: choose two.')); return; }
    const found = await this.asking.run((options) => this.view.post('/api/similar/rank/why', { ...this.sent, ...this.places() }, options));
    if (found) this.tell(found);
  }

  // The difference as a sum: words of the query, its biases, and what they add up to.
  tell(found) {
    const parts = [...found.query.map((word) => [word, word.relevance]), [null, found.rest]];
    const places = Math.max(3, placesFor(found.score));
    const seen = roundToSum(parts.map(([, amount]) => amount), found.score, places);
    const scale = Math.max(...parts.map(([, amount]) => Math.abs(amount)), 0);
    const both = [found.above, found.below];
    const most = Math.max(...both.flatMap((one) => one.words.map((word) => Math.abs(word.relevance))), 0);
    const words = found.query.filter((word) => !word.special).sort((one, other) => other.relevance - one.relevance);
    const speaks = (word, side) => (word && (side === 'above') === word.relevance > 0 ? [h('strong', {}, word.text), ` speaks most for the one ${side} (${shown(word.relevance, places)})`] : null);
    const said = [speaks(words[0], 'above'), speaks(words.at(-1), 'below')].filter(Boolean);
    this.why.replaceChildren(
      h('p', { className: 'says' }, `The ${found.measure} differs by ${shown(found.score, places)}. `, said.map((part, n) => [n ? ', ' : 'Of the query, ', part]), said.length ? '.' : ''),
      h('div', { className: 'pair' }, both.map((one, n) => h('div', {}, h('h3', {}, `${one.place + 1}: ${n ? 'below' : 'above'} `, h('span', { className: 'soft change' }, shown(one.score, 3))), coloured(one.words, most, `passage ${one.place + 1}`)))),
      h('table', { className: 'numbers why-table' }, h('caption', {}, 'What each word of the query does more for the one above'),
        h('thead', {}, h('tr', {}, ['word of the query', 'more'].map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, parts.map(([word, amount], n) => {
          const { kind, share } = heat.look(amount, scale);
          return h('tr', {}, h('th', { scope: 'row' }, word ? h('span', { className: `w ${kind}${word.special ? ' special' : ''}`, style: { '--o': share.toFixed(3) } }, word.text) : 'biases of the query'), h('td', {}, shown(seen[n], places)));
        })),
        h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'difference'), h('td', {}, shown(found.score, places))))),
      h('p', { className: found.closed ? 'verdict closed' : 'verdict open' }, h('b', {}, found.closed ? 'It adds up: ' : 'It does not add up: '), minus(found.sum), ' for all lines of both ledgers, the first minus the second.'));
  }

  report() {
    return this.found ? { path: '/api/similar/rank/report', name: 'rank', body: { ...this.sent, ...this.places(), model: modelAsked(this.view.about, 'sentence', this.view.model) }, query: `&palette=${state.get('palette', 'red-blue')}` } : null;
  }
}

// Words on the ground of their relevance, only to be read.
const coloured = (words, scale, label) => heat.row(words.map((word) => ({ ...word, word: word.special ? null : 0 })), words.map((word) => word.relevance), scale, new Set(), label, true);
