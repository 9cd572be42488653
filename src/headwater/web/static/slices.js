// A result counted: labels by predictions, and slices by the values of a column. A click shows the rows.

import { get } from './api.js';
import { chips, only } from './conditions.js';
import { counted, h, percent, signed } from './dom.js';
import { state } from './state.js';
import { partsOf } from './sums.js';

export class SlicesPart {
  constructor(view) {
    this.view = view;
    this.body = view.body; // its own: a late answer of a part that was left draws nothing on the next
  }

  async show() {
    const { columns } = await get(`${this.view.path}/rows?count=1`);
    const names = columns.map((column) => column.name).filter((name) => !['row_id', 'row', 'text'].includes(name));
    this.column = names.includes(state.get('by')) ? state.get('by') : names.find((name) => name === 'label') ?? names[0];
    this.matrix = h('div');
    this.table = h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Slices' });
    const by = h('select', { id: 'slices-by', onchange: () => { state.set({ by: by.value }); this.view.open(); } }, names.map((name) => h('option', { value: name }, name)));
    by.value = this.column;
    this.body.replaceChildren(chips(() => this.view.open(), true) ?? '', this.matrix,
      h('div', { className: 'asked' }, h('label', { for: 'slices-by' }, 'Slices by', by)), this.table);
    await this.confusion();
    try {
      this.sliced(await get(`${this.view.path}/slices?by=${encodeURIComponent(this.column)}&${this.view.query()}`));
    } catch (error) {
      this.table.replaceChildren(h('p', { className: 'soft' }, error.message));
    }
  }

  rowsWith(...added) {
    only(...added);
    state.set({ part: 'rows', beside: '' });
    this.view.open();
  }

  async confusion() {
    const label = state.get('lab');
    let found;
    try {
      found = await get(`${this.view.path}/confusion?${this.view.query()}${label ? `&label=${encodeURIComponent(label)}` : ''}`);
    } catch (error) {
      this.matrix.replaceChildren(h('p', { className: 'soft' }, error.message));
      return;
    }
    const choice = h('select', { id: 'labels', onchange: () => { state.set({ lab: choice.value }); this.view.open(); } }, found.choices.map((name) => h('option', { value: name }, name)));
    choice.value = found.label;
    const most = Math.max(...found.counts.flat(), 1);
    const cell = (i, j) => {
      const [count, right] = [found.counts[i][j], found.same[i] === j];
      return h('td', { className: right ? 'right' : '', style: { '--o': (count / most).toFixed(3) } }, h('button', {
        type: 'button', className: 'count', disabled: !count, 'aria-label': `${counted(count, 'row')}: ${found.label} ${found.labels[i]}, ${found.prediction} ${found.predictions[j]}`,
        onclick: () => this.rowsWith([found.label, found.labels[i]], [found.prediction, found.predictions[j]]),
      }, count.toLocaleString('en')));
    };
    this.matrix.replaceChildren(
      h('div', { className: 'asked' }, h('label', { for: 'labels' }, 'True classes are in', choice)),
      h('p', { className: 'soft' }, found.right === null ? 'The labels are not called as the model’s classes are, so what is right is not known.' : `${percent(found.right)} of the rows are predicted right (framed). A number shows its rows.`),
      h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Confusion matrix' }, h('table', { className: 'numbers confusion' }, h('caption', {}, 'Labels by predictions'),
        h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, `${found.label}\u00a0↓ ${found.prediction}\u00a0→`), found.predictions.map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, found.labels.map((name, i) => h('tr', {}, h('th', { scope: 'row' }, this.label(found, name, i)), found.predictions.map((_, j) => cell(i, j))))))));
  }

  // A number among the labels with the class that it stands for.
  label(found, name, i) {
    const same = found.predictions[found.same[i]];
    if (name === '') return 'none';
    return same === undefined || same.toLowerCase() === name.toLowerCase() ? name : `${name} (${same})`;
  }

  sliced(found) {
    const means = Object.keys(found.slices[0]?.means ?? {});
    const judged = found.slices.some((one) => one.right !== null);
    this.table.replaceChildren(h('table', { className: 'numbers slices-table' },
      h('thead', {}, h('tr', {}, [found.column, 'rows', ...(judged ? ['right'] : []), ...means.map((name) => `mean ${name}`)].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, found.slices.map((one) => h('tr', {},
        h('th', { scope: 'row' }, h('button', { type: 'button', className: 'sorts', 'aria-label': `Rows with ${found.column} ${one.name}`, onclick: () => this.rowsWith(one.where) }, one.name === '' ? 'none' : one.name)),
        h('td', {}, one.rows.toLocaleString('en')), judged ? h('td', {}, one.right === null ? '' : percent(one.right)) : null,
        this.means(one.means))))));
  }

  // The mean of a sum is the sum of the means: they add up as those of a row do.
  means(found) {
    const [names, values] = [Object.keys(found), Object.values(found)];
    const parts = partsOf(names, values);
    return values.map((value, i) => h('td', {}, parts.get(i) ?? (value === null ? '' : signed(value, Math.max(Math.abs(value), 0.01)))));
  }
}
