// The mask test: what masking did to the score, and which method had said so best.

import { Latest, post } from './api.js';
import { classes } from './classes.js';
import { h } from './dom.js';
import { onlyFailures } from './status.js';
import { placesFor, shown } from './sums.js';
import { phrases } from './verdict.js';

export class MaskBox {
  // `unmask` takes all masks off, `more` gives further buttons for an answer.
  constructor(status, { unmask, unit, more = () => [] }) {
    Object.assign(this, { unmask, unit, more });
    this.element = h('div', { className: 'test', 'aria-live': 'polite' });
    this.latest = new Latest(onlyFailures((message) => status.fail(message)));
  }

  clear() {
    this.latest.stop();
    this.element.replaceChildren();
  }

  async ask(path, body) {
    const found = await this.latest.run((options) => post(path, body, options));
    if (found) this.show(found);
    return found;
  }

  show(found) {
    const moved = found.score_after - found.score_before;
    const places = placesFor(moved || found.score_before); // those of the sentence, so that its number is the difference of these
    const [before, change] = [found.score_before, moved].map((value) => Number(value.toFixed(places)));
    this.element.replaceChildren(
      h('h3', {}, 'Put to the test'),
      h('p', { className: 'found' }, phrases(found.said), '.'),
      h('p', { className: 'soft' }, `The score of ${found.target} goes from ${shown(before, places)} to ${shown(before + change, places)}: `,
        h('b', { className: 'change' }, shown(change, places)), '.'),
      h('p', {}, h('button', { type: 'button', className: 'quiet', onclick: () => this.unmask() }, `Show all ${this.unit} again`), ' ', this.more(found)));
  }
}

// A table's first column as buttons that mask, so that what is drawn can be masked without a pointer.
export function maskButton(name, number, masked, act) {
  return h('button', { type: 'button', className: 'mask', 'data-mask': number, 'aria-pressed': String(masked.has(number)), onclick: () => act(number) }, name);
}

export { classes };
