// One line under a view's controls: working (and how to cancel), its place in the line, how long it took, what failed.

import { h } from './dom.js';

const SOON = 250; // ms: what is quicker shows no sign of work

// In place of a status: what goes well is not said.
export const onlyFailures = (fail) => ({ working() {}, place() {}, wait() {}, done() {}, say() {}, fail });

export class Status {
  constructor() {
    this.said = h('span');
    this.cancel = h('button', { type: 'button', className: 'quiet small', hidden: true }, 'Cancel');
    this.element = h('p', { className: 'status', role: 'status' }, this.said, ' ', this.cancel);
  }

  say(text, failed = false) {
    clearTimeout(this.timer);
    this.said.textContent = text;
    this.cancel.hidden = true;
    this.element.classList.toggle('failed', failed);
    this.element.classList.remove('busy');
  }

  working(stop) {
    clearTimeout(this.timer);
    this.cancel.onclick = stop;
    this.timer = setTimeout(() => this.wait('working …'), SOON);
  }

  wait(text) {
    clearTimeout(this.timer);
    this.said.textContent = text;
    this.cancel.hidden = false;
    this.element.classList.remove('failed');
    this.element.classList.add('busy');
  }

  place(number) {
    if (number > 0) this.wait(`in line: ${number === 1 ? 'next' : `${number - 1} before this`}`);
    else this.wait('working …');
  }

  done(milliseconds) {
    this.say(`answered in ${milliseconds < 10_000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`}`);
  }

  fail(message) {
    this.say(message, true);
  }
}
