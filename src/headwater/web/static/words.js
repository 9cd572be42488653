// The words that matter most in a result: a list for every class, whole words, punctuation apart.

import { get } from './api.js';
import { counted, h, signed } from './dom.js';
import * as heat from './heat.js';
import { state } from './state.js';

const HEADS = [['word', ''], ['times', ''], ['mean', 'mean'], ['in all', 'total']];

export class WordsPart {
  constructor(view) {
    this.view = view;
    this.body = view.body; // its own: a late answer of a part that was left draws nothing on the next
  }

  query() {
    const [target, by] = [state.get('wc'), state.get('wb')];
    return `${target ? `&target=${encodeURIComponent(target)}` : ''}${by ? `&by=${by}` : ''}`;
  }

  async show() {
    const found = await get(`${this.view.path}/words?count=40${this.query()}`);
    const by = state.get('wb', 'total');
    const chosen = h('select', { id: 'words-class', onchange: () => { state.set({ wc: chosen.value }); this.view.open(); } },
      found.targets.map((one) => h('option', { value: one.name }, `${one.name} (${counted(one.rows, 'row')})`)));
    chosen.value = found.target;
    const scale = Math.max(...[...found.words, ...found.punctuation].map((word) => Math.abs(word[by])), 0);
    const sides = (words) => h('div', { className: 'pair' }, this.side('Add most', words.filter((w) => w[by] > 0), by, scale), this.side('Take away most', words.filter((w) => w[by] < 0).reverse(), by, scale));
    this.body.replaceChildren(
      h('div', { className: 'asked' }, h('label', { for: 'words-class' }, 'Words for the class', chosen)),
      h('p', { className: 'soft' }, `Relevance for “${found.target}” over the ${counted(found.rows, 'row')} with an explanation of its score. Word pieces are joined${found.least > 1 ? `; words that stand there less than ${found.least} times are left out` : ''}.`),
      sides(found.words),
      found.punctuation.length ? h('details', {}, h('summary', { className: 'soft' }, `punctuation (${found.punctuation.length})`), sides(found.punctuation)) : '');
  }

  side(title, words, by, scale) {
    if (!words.length) return null;
    return h('div', { className: 'wide', role: 'region', tabindex: 0, 'aria-label': title }, h('table', { className: 'numbers' }, h('caption', {}, title),
      h('thead', {}, h('tr', {}, HEADS.map(([name, key]) => h('th', { scope: 'col', 'aria-sort': key === by ? 'descending' : undefined },
        key ? h('button', { type: 'button', className: 'sorts', onclick: () => { state.set({ wb: key === 'total' ? '' : key }); this.view.open(); } }, name) : name)))),
      h('tbody', {}, words.map((word) => {
        const { kind, share } = heat.look(word[by], scale);
        return h('tr', {}, h('th', { scope: 'row' }, h('span', { className: `w ${kind}`, style: { '--o': share.toFixed(3) } }, word.text)), h('td', {}, String(word.count)), h('td', {}, signed(word.mean)), h('td', {}, signed(word.total)));
      }))));
  }
}
