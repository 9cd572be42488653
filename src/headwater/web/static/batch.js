// Several prompts at once: a row for each, with what the model says, what it came from, and what it nearly said.

import { Latest, post, ready } from './api.js';
import { h, percent, signed } from './dom.js';
import * as heat from './heat.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { Status } from './status.js';

const PROMPTS = 24; // the most that are asked at once
const LONG = 4000; // characters of one prompt

export class Batch {
  // `body(prompt)` is a request of the view's settings; `open(prompt)` shows one prompt in full.
  constructor({ body, open, model }) {
    Object.assign(this, { body, open, model });
    this.status = new Status();
    this.latest = new Latest(this.status);
    this.box = h('textarea', { id: 'prompts', rows: 4, spellcheck: 'false', placeholder: 'one prompt a line' });
    this.table = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Prompts' });
    this.element = h('details', { className: 'card', id: 'batch', ontoggle: () => { if (this.element.open) this.restore(); } },
      h('summary', {}, h('h2', {}, 'Several prompts'), h('span', { className: 'soft' }, 'one a line, each a row')),
      h('label', { for: 'prompts', className: 'row' }, `Prompts, one a line (at most ${PROMPTS})`, this.box),
      h('div', { className: 'under' }, h('button', { type: 'button', className: 'main', id: 'ask-all', onclick: () => this.ask() }, 'Explain all'),
        saver(() => (this.found?.length ? { name: 'prompts', values: this.found } : null), this.status, { svg: 'SVG', png: 'PNG', json: 'JSON' })),
      this.status.element, this.table);
  }

  restore() {
    if (!this.box.value) this.box.value = state.get('prompts');
  }

  show() {
    const kept = state.get('prompts');
    if (!kept) return;
    if (kept !== this.kept) { this.box.value = this.kept = kept; this.element.open = true; }
    if (!this.asked) this.ask();
  }

  // Nothing that was found for other prompts, or by another model, stays on the screen.
  clear() {
    this.latest.stop();
    Object.assign(this, { found: null, asked: '' });
    this.status.say('');
    this.table.replaceChildren();
  }

  lines() {
    return this.box.value.split('\n').map((line) => line.trim()).filter(Boolean);
  }

  async ask() {
    const prompts = this.lines();
    if (!prompts.length) { this.status.say('Type at least one prompt.'); return; }
    if (prompts.length > PROMPTS) { this.status.fail(`At most ${PROMPTS} prompts are asked at once, and there are ${prompts.length}.`); return; }
    const long = prompts.findIndex((prompt) => prompt.length > LONG);
    if (long >= 0) { this.status.fail(`Prompt ${long + 1} is longer than ${LONG.toLocaleString('en')} characters.`); return; }
    this.clear();
    this.asked = this.kept = this.box.value;
    state.set({ prompts: this.box.value });
    this.found = [];
    await this.latest.run(async (options) => {
      if (this.model().state !== 'ready') await ready('language', { ...options, name: this.model().name });
      for (const prompt of prompts) {
        options.onWait(`${this.found.length} of ${prompts.length} …`);
        try {
          this.found.push({ asked: prompt, ...(await post('/api/generate', this.body(prompt), options)) });
        } catch (error) {
          if (options.signal.aborted || error.kind !== 'refused') throw error;
          this.found.push({ asked: prompt, refused: error.message });
        }
        this.draw();
      }
      return this.found;
    });
  }

  draw() {
    this.table.replaceChildren(h('table', { className: 'numbers batch-table' },
      h('thead', {}, h('tr', {}, ['prompt', 'it said', 'probability of a token', 'likeliest first tokens'].map((name, i) => h('th', { scope: 'col', className: i === 2 ? '' : 'text' }, name)))),
      h('tbody', {}, this.found.map((one) => (one.refused ? this.refusal(one) : this.row(one))))), heat.key());
  }

  refusal(one) {
    return h('tr', {}, h('td', { className: 'text' }, one.asked), h('td', { className: 'text open', colspan: 3 }, one.refused));
  }

  // The prompt is coloured by what it gave to all output tokens together.
  row(one) {
    const sums = one.pieces.slice(0, one.prompt).map((_, i) => one.rows.reduce((sum, row) => sum + (row.relevance[i] ?? 0), 0));
    const scale = Math.max(...sums.map(Math.abs), 0);
    const shown = sums.map((amount, i) => {
      const piece = one.pieces[i];
      const inner = piece.text.trimStart();
      const { kind, share } = heat.look(amount, scale);
      return [piece.text.slice(0, piece.text.length - inner.length), h('span', { className: `w ${kind}${piece.aside ? ' aside' : ''}`, style: { '--o': share.toFixed(3) }, title: signed(amount, scale) }, inner || '␣')];
    });
    const likely = Math.exp(one.rows.reduce((sum, row) => sum + Math.log(row.probability), 0) / one.rows.length);
    return h('tr', {}, h('td', { className: 'text row-text' }, h('div', { className: 'words' }, shown)),
      h('td', { className: 'text', 'data-name': 'it said' }, h('button', { type: 'button', className: 'quiet small', 'aria-label': `Open: ${one.asked}`, onclick: () => this.open(one.asked) }, one.text.trim() || '␣')),
      h('td', { 'data-name': 'probability of a token' }, percent(likely)),
      h('td', { className: 'text', 'data-name': 'likeliest first tokens' }, one.rows[0].alternatives.slice(0, 3).map((other) => `${other.text} ${percent(other.probability)}`).join(', ')));
  }
}
