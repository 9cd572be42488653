// What every view has: a line that says how its question stands, and what is shown while there are no results.

import { Latest } from './api.js';
import { state } from './state.js';
import { onlyFailures, Status } from './status.js';
import { Missing } from './verdict.js';

export class View {
  constructor() {
    this.status = new Status();
    this.latest = new Latest(this.status);
    this.latest.failed = (message) => this.clear(message);
    this.missing = new Missing();
  }

  // Whether the address has other values than when boxes were last filled from it; else what was typed there stays.
  renewed(names) {
    const now = JSON.stringify(names.map((name) => state.get(name)));
    const other = now !== this.seen;
    this.seen = now;
    return other;
  }

  // What another model found is taken off the screen, and asked again when this is shown.
  forget() {
    if (!this.asked) return;
    this.latest.stop();
    this.clear('');
    Object.assign(this, { asked: '', forgotten: true });
  }

  // Asks beside the latest question: only what fails is said.
  asker() { return new Latest(onlyFailures((message) => this.status.fail(message))); }
}
