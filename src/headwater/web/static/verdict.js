// A sentence from the server: parts of it are words of the input or names of methods, which stand out. All of it is text.

import { h } from './dom.js';
import { minus } from './sums.js';

export const phrases = (parts) => parts.map((part) => (part.named ? h('strong', {}, part.text) : minus(part.text)));

// The sentence above all results.
export class VerdictLine {
  constructor() {
    this.said = h('p', { className: 'says', 'aria-live': 'polite' });
    this.element = h('section', { className: 'card verdict-card', 'aria-label': 'In a sentence' }, this.said);
  }

  show(parts) { this.said.replaceChildren(...phrases(parts), '.'); }
}

// What stands in place of results while there are none: nothing that was found before stays on the screen.
export class Missing {
  constructor() { this.element = h('p', { className: 'missing', role: 'note' }); }

  say(results, text) {
    this.element.textContent = text;
    results.classList.add('empty');
  }

  clear(results) { results.classList.remove('empty'); }
}
