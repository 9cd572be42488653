// Heads or neurons over a dataset, ranked, with the tokens at which they have most: of a run that stored them.

import { get } from './api.js';
import { counted, h, signed } from './dom.js';

export class UnitRanking {
  constructor(status) {
    this.status = status;
    this.run = h('select', { 'aria-label': 'Run', onchange: () => this.kinds() });
    this.kind = h('select', { 'aria-label': 'Parts', onchange: () => this.rank() });
    this.body = h('div', { 'aria-live': 'polite' });
    this.choice = h('div', { className: 'row two', hidden: true }, h('label', {}, 'Run', this.run), h('label', {}, 'Parts', this.kind));
    this.element = h('section', { className: 'card ranking' }, h('h2', {}, 'Over a dataset'), this.choice, this.body);
  }

  async load() {
    if (this.runs) return;
    try {
      this.runs = await get('/api/inside/runs');
    } catch (error) {
      this.status.fail(error.message);
      return;
    }
    if (!this.runs.length) {
      this.body.replaceChildren(h('p', { className: 'soft' }, 'No run with parts of a model was named at start: ', h('code', {}, 'headwater run --inside neurons --out out …'), ', then ', h('code', {}, 'headwater app --results out'), '.'));
      return;
    }
    this.choice.hidden = false;
    this.run.replaceChildren(...this.runs.map((run) => h('option', { value: run.id }, `${run.name} (${run.model})`)));
    this.kinds();
  }

  kinds() {
    const run = this.runs.find((one) => one.id === this.run.value);
    const kinds = [...run.kinds].sort((a, b) => (a === 'neurons' ? -1 : b === 'neurons' ? 1 : 0));
    this.kind.replaceChildren(...kinds.map((kind) => h('option', { value: kind }, kind)));
    if (kinds.length) this.rank();
    else this.body.replaceChildren(h('p', { className: 'soft' }, 'This run holds neither heads nor neurons.'));
  }

  async rank() {
    const asked = `/api/inside/runs/${encodeURIComponent(this.run.value)}/${this.kind.value}`;
    this.asked = asked;
    this.body.replaceChildren(h('p', { className: 'soft' }, 'adding up …'));
    try {
      const found = await get(asked);
      if (this.asked === asked) this.draw(found);
    } catch (error) {
      if (this.asked === asked) this.body.replaceChildren(h('p', { className: 'refused' }, error.message));
    }
  }

  draw(found) {
    const scale = Math.max(...found.units.map((one) => one.size), 0);
    const rows = found.rows < found.of ? `the first ${found.rows.toLocaleString('en')} of ${found.of.toLocaleString('en')} rows` : counted(found.rows, 'row');
    this.body.replaceChildren(h('p', { className: 'soft hint' }, `The ${found.units.length} ${found.kind} with the largest mean absolute relevance over ${rows}; beside each the tokens at which it has most, with how often and the sum there.`),
      h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Ranked over a dataset' }, h('table', { className: 'numbers ranked' }, h('thead', {}, h('tr', {}, [found.kind.slice(0, -1), 'size', 'mean', 'tokens'].map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, found.units.map((one) => h('tr', {}, h('th', { scope: 'row' }, one.name), h('td', {}, signed(one.size, scale).replace('+', '')), h('td', {}, signed(one.mean, scale)),
          h('td', { className: 'text' }, one.tokens.map((token) => [h('span', { className: `w ${token.total > 0 ? 'add' : 'take'}`, style: { '--o': 0.35 } }, token.text), h('small', {}, ` ${token.rows}×, ${signed(token.total)}  `)]))))))));
  }
}
