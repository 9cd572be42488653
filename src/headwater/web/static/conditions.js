// Which rows are wanted beside the search: conditions that a click on a matrix or a slice adds, each to be taken away.

import { h, signed } from './dom.js';
import { state } from './state.js';

export function conditions() {
  try {
    const found = JSON.parse(state.get('where') || '[]');
    return Array.isArray(found) ? found.filter((one) => Array.isArray(one) && one.length > 1) : [];
  } catch {
    return [];
  }
}

const keep = (all) => state.set({ where: all.length ? JSON.stringify(all) : '' });

// One condition a column: the new one takes the place of the old.
export function only(...added) {
  const names = new Set(added.map(([column]) => column));
  keep([...conditions().filter(([column]) => !names.has(column)), ...added]);
}

const said = ([column, value, high]) => (high === undefined ? `${column}: ${value === '' ? 'none' : value}` : `${column}: ${signed(value)} to ${signed(high)}`);

// With `searched`, what the rows were searched for is among them.
export function chips(changed, searched = false) {
  const all = conditions();
  const find = searched && state.get('find');
  if (!all.length && !find) return null;
  return h('p', { className: 'conditions' }, h('span', { className: 'soft' }, 'only rows with '),
    find ? h('button', {
      type: 'button', className: 'chip', 'aria-label': `Take away the search for ${find}`, onclick: () => { state.set({ find: '', within: '' }); changed(); },
    }, `${state.get('within', 'a text')}: “${find}”`, ' ×') : null,
    all.map((one) => h('button', {
      type: 'button', className: 'chip', 'aria-label': `Take away the condition ${said(one)}`,
      onclick: (event) => {
        event.currentTarget.remove();
        keep(conditions().filter((other) => said(other) !== said(one)));
        changed();
      },
    }, said(one), ' ×')));
}
