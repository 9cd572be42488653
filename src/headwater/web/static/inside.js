// Inside the model: layers by heads, a head between words, parts that are switched off, neurons, and the cut that adds up.

import { post, ready } from './api.js';
import { examples } from './choosing.js';
import { CircuitCard } from './circuit.js';
import { h, onCtrlEnter, percent, signed } from './dom.js';
import { HeadGrid } from './head_grid.js';
import { PairLines } from './head_pairs.js';
import * as heat from './heat.js';
import { chosenModel, followedModel, modelAsked, modelLine } from './models.js';
import { saver } from './saving.js';
import { state } from './state.js';
import { minus } from './sums.js';
import { UnitRanking } from './unit_ranking.js';
import { View } from './view.js';

const KINDS = 'text language';
const EXAMPLES = {
  text: ['a gripping, beautifully acted film', 'the film is not good, but never boring', 'I expected a masterpiece and got a mess'],
  language: ['The keys to the cabinet', 'The capital of France is', 'When Mary and John went to the shop, John gave a drink to'],
};

export class InsideView extends View {
  constructor(about) {
    super();
    this.about = about;
    this.model = chosenModel(about, KINDS, 'model');
    [this.opening, this.patching] = [this.asker(), this.asker()];
    this.off = new Map();
    this.element = this.built();
  }

  built() {
    this.box = h('textarea', { id: 'inside-text', rows: 2, maxlength: 20000, spellcheck: 'false' });
    onCtrlEnter(this.box, () => this.ask());
    this.grid = new HeadGrid((group, head) => this.openHead(group, head));
    this.refused = h('div', { className: 'refused' });
    this.head = h('section', { className: 'card head-card', 'aria-live': 'polite', hidden: true });
    this.pairs = new PairLines();
    this.cut = h('div', { className: 'cut' });
    this.layers = h('div', { className: 'layers' });
    this.neurons = h('div');
    this.how = h('select', { id: 'replaced-by', onchange: () => this.patch() }, h('option', { value: 'zeros' }, 'zeros'), h('option', { value: 'mean' }, 'their mean over the tokens of this text'));
    this.moved = h('div', { className: 'moved', 'aria-live': 'polite' });
    this.circuit = new CircuitCard(this.status, () => (this.found ? this.sent : null));
    this.ranking = new UnitRanking(this.status);
    this.results = h('div', { className: 'results' }, this.missing.element,
      h('section', { className: 'card heads-card' }, h('div', { className: 'headed' }, h('h2', {}, 'Layers and heads'), saver(() => this.report(), this.status, { html: 'Page', json: 'JSON' })),
        this.summary = h('p', { className: 'says' }), this.others = h('p', { className: 'soft' }), this.grid.element, this.refused, heat.key(h('span', { className: 'soft' }, ' full colour is the largest head')),
        h('p', { className: 'soft hint' }, 'Arrow keys walk the grid, Enter opens a head.')),
      this.head,
      h('div', { className: 'pair' }, h('section', { className: 'card off-card' }, h('h2', {}, 'Switched off'), h('label', { className: 'row' }, 'Parts that are switched off are replaced by', this.how), this.moved),
      h('section', { className: 'card' }, h('h2', {}, 'The cut that adds up'), this.cut)),
      h('section', { className: 'card' }, h('h2', {}, 'Layers'), this.layers),
      h('section', { className: 'card' }, h('h2', {}, 'Neurons for this text'), this.neurons),
      this.circuit.element, this.ranking.element);
    this.results.hidden = true;
    return h('div', { className: 'view wide-view inside-view' },
      h('section', { className: 'card input' }, h('h1', { className: 'heard' }, 'Inside the model'),
        modelLine(this.about, KINDS, 'model', () => this.changeModel()),
        h('label', { for: 'inside-text', className: 'big' }, 'A text, and what passes through the model’s parts'), this.box,
        h('div', { className: 'under' }, this.tries = h('div'),
          h('button', { type: 'button', className: 'main', id: 'look-inside', onclick: () => this.ask() }, 'Look inside')),
        this.status.element),
      this.results);
  }

  show() {
    const model = followedModel(this.element, this.about, KINDS, 'model');
    const other = model.name !== this.model.name;
    this.model = model;
    this.showExamples();
    const fresh = this.renewed(['text']);
    if (fresh) this.box.value = state.get('text', EXAMPLES[this.model.kind][0]);
    this.ranking.load();
    if (other) this.clear('');
    if ((fresh || other) && (!this.found || JSON.stringify(this.body()) !== this.asked)) this.ask();
    else if (this.found) this.followHead();
  }

  // The head that the address names is open, and no other.
  followHead() {
    const [group, head] = state.get('head', '').split(',').map(Number);
    if (this.found.heads[group]?.relevance[head] !== undefined) {
      if (this.chosen?.group !== group || this.chosen.head !== head) this.openHead(group, head, false);
    } else if (this.chosen) {
      this.opening.stop();
      this.chosen = null;
      this.head.hidden = true;
      this.drawGrid();
    }
  }

  showExamples() {
    this.tries.replaceChildren(examples('Examples', EXAMPLES[this.model.kind].map((text) => [text, text]), (text) => { this.box.value = text; this.ask(); }));
  }

  // A text that was typed stays; an example of the other kind of model makes room for one of this kind.
  changeModel() {
    const before = EXAMPLES[this.model.kind];
    this.model = chosenModel(this.about, KINDS, 'model');
    const own = EXAMPLES[this.model.kind];
    if (before !== own && before.includes(this.box.value)) [this.box.value] = own;
    this.showExamples();
    this.clear('');
    this.ask();
  }

  body() { return { text: this.box.value, kind: this.model.kind, model: modelAsked(this.about, this.model.kind, this.model) }; }

  async ask() {
    if (!this.box.value.trim()) { this.latest.stop(); this.clear('There is no text: type one, or choose an example.'); return; }
    const body = this.body();
    this.asked = JSON.stringify(body);
    state.set({ text: this.box.value });
    this.renewed(['text']);
    const found = await this.latest.run(async (options) => {
      if (this.model.state !== 'ready') this.model = await ready(this.model.kind, { ...options, name: this.model.name });
      return post('/api/inside', body, options);
    });
    if (!found) return;
    Object.assign(this, { found, sent: body, chosen: null });
    this.missing.clear(this.results);
    this.results.hidden = false;
    this.draw();
    this.followHead();
  }

  // Nothing that was found for another text stays on the screen.
  clear(message) {
    this.found = null;
    this.circuit.clear();
    this.opening.stop();
    this.patching.stop();
    this.head.hidden = true;
    for (const place of [this.grid.element, this.refused, this.cut, this.layers, this.neurons, this.moved, this.summary, this.others]) place.replaceChildren();
    this.results.hidden = false;
    this.missing.say(this.results, message);
  }

  draw() {
    const { found } = this;
    this.off.clear();
    this.circuit.clear();
    this.head.hidden = true;
    const share = found.classes.find((one) => one.name === found.prediction);
    const next = this.sent.kind === 'language';
    this.summary.replaceChildren(next ? 'Next token ' : 'Predicted ', h('strong', {}, found.prediction ?? found.target), share ? ` (${percent(share.probability)})` : '', `; relevance of its ${found.output} ${minus(found.score.toFixed(2))} by ${found.method}.`);
    const others = found.classes.filter((one) => one !== share);
    this.others.replaceChildren(next ? `Then come ${others.map((one) => `“${one.name}” (${percent(one.probability)})`).join(', ')}.` : '');
    this.refused.replaceChildren(...found.refused.map(({ kind, reason }) => h('p', {}, h('b', {}, `${kind}: `), reason)));
    this.drawGrid();
    this.drawLayers();
    this.drawNeurons();
    this.patch();
    const first = found.heads[0] ?? found.layers[0] ?? found.neuron_groups[0];
    if (first?.cut) this.drawCut(first.label + (found.heads[0] ? ' heads' : ''), first.cut);
  }

  drawGrid() { this.grid.show(this.found.heads, this.chosen, this.off); }

  drawLayers() {
    const { layers, cells } = this.found;
    this.layers.replaceChildren(...layers.map((layer) => {
      const scale = Math.max(...layer.positions.map(Math.abs), 0);
      return h('div', { className: 'layer' }, h('button', { type: 'button', className: 'quiet small', onclick: () => this.drawCut(layer.label, layer.cut, true) }, layer.label), h('span', { className: 'change' }, signed(layer.relevance, this.found.score)),
        layer.positions.length ? heat.row(cells, layer.positions, scale, new Set(), `${layer.label}, relevance by token`, true) : h('p', { className: 'soft' }, 'not by token'));
    }));
    if (!layers.length) this.layers.replaceChildren(h('p', { className: 'soft' }, 'The model’s layers cannot be told.'));
  }

  drawNeurons() {
    const { neurons, cells, neuron_groups: groups } = this.found;
    if (!neurons.length) { this.neurons.replaceChildren(h('p', { className: 'soft' }, 'The model’s neurons cannot be told.')); return; }
    const scale = Math.abs(neurons[0].relevance);
    this.neurons.replaceChildren(h('p', { className: 'soft hint' }, `The ${neurons.length} largest of ${groups.reduce((sum, one) => sum + one.count, 0).toLocaleString('en')}; each with the token at which it has most.`),
      h('table', { className: 'numbers neurons' }, h('thead', {}, h('tr', {}, ['neuron', 'relevance', 'token', 'there', ''].map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, neurons.map((one) => h('tr', {}, h('th', { scope: 'row' }, one.name), h('td', {}, signed(one.relevance, scale)), h('td', { className: 'text' }, one.token === null ? '' : cells[one.token].text), h('td', {}, one.at_token === null ? '' : signed(one.at_token, scale)), h('td', {}, this.offButton('neurons', one)))))));
  }

  offButton(kind, one) {
    const gone = this.off.has(`${kind}|${one.module}|${one.unit}`);
    return h('button', { type: 'button', className: 'quiet small off', 'aria-pressed': String(gone), 'aria-label': `${gone ? 'Switch on' : 'Switch off'} ${one.name}`, 'data-off': `${kind}|${one.module}|${one.unit}`, onclick: () => this.toggle(kind, one) }, gone ? 'Switch on' : 'Switch off');
  }

  async openHead(group, head, move = true) {
    const own = this.found.heads[group];
    this.chosen = { group, head };
    if (move) state.set({ head: `${group},${head}` });
    this.drawGrid();
    if (move) this.grid.focus(group, head);
    if (own.cut) this.drawCut(`${own.label} heads`, own.cut);
    const name = `${own.label} head ${head}`;
    this.head.hidden = false;
    this.head.replaceChildren(h('p', { className: 'soft' }, `reading ${name} …`));
    const found = await this.opening.run((options) => post('/api/inside/head', { ...this.sent, module: own.module, head }, options));
    if (!this.found || this.chosen?.group !== group || this.chosen.head !== head) return;
    this.drawHead(name, own, head, found);
  }

  drawHead(name, own, head, found) {
    const { cells } = this.found;
    const reads = found ? cells.map((_, k) => found.relevance.reduce((sum, row) => sum + row[k], 0)) : [];
    const attended = found ? cells.map((_, k) => found.attention.reduce((sum, row) => sum + row[k], 0) / found.attention.length) : [];
    const line = (said, values, label, kind = '') => h('div', { className: `head-line ${kind}` }, h('h3', {}, said), heat.row(cells, values, Math.max(...values.map(Math.abs), 0), new Set(), label, true));
    this.head.replaceChildren(
      h('div', { className: 'headed' }, h('h2', {}, name), this.offButton('heads', { module: own.module, unit: head, name })),
      h('p', { className: 'soft' }, `Relevance ${signed(own.relevance[head], this.found.score)} of a score of ${minus(this.found.score.toFixed(2))}.`),
      ...(found ? [line('Attention: words that are read, mean over those that read', attended, `${name}, attention by token`, 'attention'),
        line('Relevance: words that are read', reads, `${name}, relevance by token that is read`)] : [h('p', { className: 'soft' }, 'Its attention between words cannot be read here.')]),
      own.positions[head] ? line('Relevance: words that it is written to', own.positions[head], `${name}, relevance by token that it is written to`) : '',
      found ? this.pairs.element : '');
    if (found) this.pairs.show(cells, found);
  }

  drawCut(label, cut, look = false) {
    if (!cut) return;
    const size = Math.max(Math.abs(cut.nodes), Math.abs(cut.by_passing), Math.abs(cut.sources), Math.abs(cut.score));
    const lines = [['nodes', cut.nodes, 'what passes through these parts'], ['by-passing', cut.by_passing, 'what goes around them'], ['biases so far', cut.sources, 'what enters between the cut and the score'], ...(cut.readout ? [['readout', cut.readout, '']] : []), ...(cut.closed ? [] : [['unaccounted', cut.unaccounted, 'what the method lost']])];
    this.cut.replaceChildren(h('h3', {}, label),
      h('table', { className: 'numbers' }, h('tbody', {}, lines.map(([name, amount, said]) => h('tr', { className: name === 'unaccounted' ? 'loud' : '' }, h('th', { scope: 'row' }, name, said ? h('small', {}, ` ${said}`) : ''), h('td', {}, signed(amount, size))))),
        h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'score'), h('td', {}, signed(cut.score, size))))),
      h('p', { className: `verdict ${cut.closed ? 'closed' : 'open'}` }, minus(cut.sum), cut.closed ? ' The cut adds up to the score.' : ' The cut does not add up.'));
    if (look) this.cut.scrollIntoView({ block: 'nearest' });
  }

  // A head or neuron off, or on again; the model then runs with all that are off.
  toggle(kind, one) {
    if (!this.found) return;
    const key = `${kind}|${one.module}|${one.unit}`;
    if (!this.off.delete(key)) this.off.set(key, { name: one.name, asked: { kind, module: one.module, unit: one.unit } });
    this.refresh();
  }

  // The grid and all buttons say what is off, and the model runs.
  refresh() {
    this.drawGrid();
    document.querySelectorAll('#panel-inside [data-off]').forEach((button) => {
      const gone = this.off.has(button.dataset.off);
      button.textContent = gone ? 'Switch on' : 'Switch off';
      button.setAttribute('aria-pressed', String(gone));
      button.setAttribute('aria-label', button.getAttribute('aria-label').replace(/^Switch (on|off)/, gone ? 'Switch on' : 'Switch off'));
    });
    this.patch();
  }

  nodes() { return [...this.off.values()].map(({ asked }) => asked); }

  async patch() {
    this.patching.stop();
    this.turn = (this.turn ?? 0) + 1;
    const { turn } = this;
    if (!this.found) return;
    if (!this.off.size) { this.moved.replaceChildren(h('p', { className: 'soft' }, 'Nothing. Open a head, or take a neuron of the lists, and switch it off: the model runs again, and nothing is estimated.')); return; }
    this.moved.replaceChildren(h('p', { className: 'soft' }, 'running the model …'));
    const found = await this.patching.run((options) => post('/api/inside/patch', { ...this.sent, nodes: this.nodes(), replaced_by: this.how.value }, options));
    if (this.turn !== turn) return;
    if (!found) { this.moved.replaceChildren(h('p', { className: 'soft' }, 'The model could not be run so.')); return; }
    const now = [...this.off.values()].map(({ name }) => name);
    const changed = found.patched_prediction !== found.prediction;
    this.moved.replaceChildren(h('p', { className: 'found' }, 'Without ', h('strong', {}, now.join(', ')), `, ${found.target}: `, h('b', { className: 'change' }, `${minus(found.score.toFixed(2))} → ${minus(found.patched.toFixed(2))}`)),
      h('p', {}, 'probability ', h('b', { className: 'change' }, `${percent(found.probability)} → ${percent(found.patched_probability)}`), changed ? h('span', {}, '; predicted is then ', h('strong', {}, found.patched_prediction)) : '; the prediction stays'),
      h('p', { className: 'soft' }, this.how.value === 'zeros' ? 'Their values were replaced by zeros.' : 'Their values were replaced by their mean over the tokens of this text.'),
      h('p', {}, h('button', { type: 'button', className: 'quiet', onclick: () => { this.off.clear(); this.refresh(); } }, 'Switch all on')));
  }

  repaint() {}

  report() {
    return this.found ? { path: '/api/inside/report', name: 'inside', body: { ...this.sent, nodes: this.nodes(), replaced_by: this.how.value }, query: `&palette=${state.get('palette', 'red-blue')}` } : null;
  }
}
