// A first visit: what one sees here, in three sentences and a picture. It can be put away, and comes back by its button.

import { h, svg } from './dom.js';
import { term } from './terms.js';

const SEEN = 'headwater-welcome';
const WORDS = [['not', 118, 3, 'add'], ['one', 168, 0, ''], ['dull', 214, 2, 'add'], ['could', 268, -1, 'take']];

const remember = (value) => { try { localStorage.setItem(SEEN, value); } catch { /* a browser that keeps nothing shows it again */ } };
const seen = () => { try { return localStorage.getItem(SEEN) === 'seen'; } catch { return false; } };

// Words with colours, and below them the bars that add up to the score.
function drawing() {
  const text = (x, y, said, props = {}) => svg('text', { x, y, ...props }, said);
  const bar = (x, width, kind, label) => [svg('rect', { x, y: 92, width, height: 16, className: kind }), text(x + 34, 134, label, { className: 'small', 'text-anchor': 'middle' })];
  return svg('svg', { viewBox: '0 0 380 144', role: 'img', className: 'welcome-picture', 'aria-label': 'Words of a text on coloured ground: red adds to the score, blue takes away. Below them bars: the words and the biases together are the score.' },
    text(20, 40, 'a text', { className: 'small' }),
    WORDS.map(([word, x, size, kind]) => [
      kind ? svg('rect', { x: x - 6, y: 22, width: word.length * 10 + 12, height: 26, rx: 5, className: kind, 'fill-opacity': Math.abs(size) / 3 }) : null,
      text(x, 41, word, { className: 'word' }),
      kind === 'take' ? svg('line', { x1: x - 1, x2: x + word.length * 10, y1: 46, y2: 46, className: 'pen' }) : null,
      text(x + word.length * 5, 64, size ? `${size > 0 ? '+' : '−'}${Math.abs(size)}` : '0', { className: 'small', 'text-anchor': 'middle' })]),
    text(20, 105, 'adds up', { className: 'small' }),
    bar(112, 160, 'add', 'words +4'), bar(232, 40, 'take', ''), text(280, 105, 'biases −1', { className: 'small' }),
    svg('line', { x1: 232, x2: 232, y1: 84, y2: 116, className: 'pen' }), text(232, 134, 'score +3', { className: 'small', 'text-anchor': 'start' }));
}

export class Welcome {
  constructor(button) {
    this.button = button;
    this.element = h('section', { className: 'card welcome', id: 'welcome', 'aria-labelledby': 'h-welcome' },
      h('div', {},
        h('h2', { id: 'h-welcome' }, 'What you see here'),
        h('p', {}, 'A model has made a prediction, and every word is coloured by its ', term('relevance'), ': how much it added to the ', term('score'), ' of that prediction, or took away from it.'),
        h('p', {}, 'Several ', term('method', 'methods'), ' stand below each other, because they do not agree; mask a word to see which of them was right.'),
        h('p', {}, 'The ', term('ledger'), ' says whether a method’s numbers add up: words and ', term('biases'), ' together are the score, or something was lost on the way.'),
        h('p', { className: 'links' }, h('button', { type: 'button', className: 'main', onclick: () => this.close() }, 'Got it'), ' ',
          h('a', { href: '/help/guide', target: '_blank' }, 'The guide'), ' ', h('a', { href: '/help/explorer', target: '_blank' }, 'This page explained'), ' ', h('a', { href: '/help/glossary', target: '_blank' }, 'Glossary'))),
      drawing());
    button.addEventListener('click', () => (this.element.hidden ? this.open() : this.close()));
    this.set(!seen());
  }

  set(open) {
    this.element.hidden = !open;
    this.button.setAttribute('aria-expanded', String(open));
  }

  open() {
    this.set(true);
    this.element.scrollIntoView({ block: 'nearest' });
  }

  close() {
    remember('seen');
    this.set(false);
    this.button.focus();
  }
}
