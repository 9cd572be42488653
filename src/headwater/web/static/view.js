// What every view has: a line that says how its question stands, and what is shown while there are no results.

import { Latest } from './api.js';
import { onlyFailures, Status } from './status.js';
import { Missing } from './verdict.js';

export class View {
  constructor() {
    this.status = new Status();
    this.latest = new Latest(this.status);
    this.latest.failed = (message) => this.clear(message);
    this.missing = new Missing();
  }

  // Asks beside the latest question: only what fails is said.
  asker() { return new Latest(onlyFailures((message) => this.status.fail(message))); }
}
