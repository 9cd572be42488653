// The documents of a question: each with a name and its text, typed, pasted, or read from files.

import { h } from './dom.js';

export const DOCUMENTS = 200; // that one question may have
const LONG = 20_000; // characters of one document

export class DocumentList {
  // `changed()` is called whenever a document was typed into, added or taken away.
  constructor(status, changed) {
    Object.assign(this, { status, changed });
    this.list = h('div', { className: 'document-list' });
    this.files = h('input', { type: 'file', multiple: true, accept: '.txt,.md,text/plain,text/markdown', className: 'heard', tabindex: -1, 'aria-hidden': 'true', onchange: () => this.read() });
    this.element = h('section', { 'aria-label': 'Documents' }, this.list,
      h('div', { className: 'examples' },
        h('button', { type: 'button', className: 'quiet small', id: 'add-document', onclick: () => { this.add('', ''); this.list.lastElementChild.querySelector('textarea').focus(); this.changed(); } }, 'Add a document'),
        h('button', { type: 'button', className: 'quiet small', onclick: () => this.files.click() }, 'Open text files …'), this.files));
  }

  add(name, text) {
    if (this.list.children.length >= DOCUMENTS) { this.status.fail(`At most ${DOCUMENTS} documents are asked about at once.`); return; }
    const number = this.list.children.length + 1;
    const row = h('div', { className: 'document-row' },
      h('input', { type: 'text', maxlength: 200, placeholder: `Document ${number}`, 'aria-label': `Name of document ${number}`, oninput: () => this.changed() }),
      h('button', { type: 'button', className: 'quiet small', 'aria-label': `Take document ${number} away`, onclick: () => { row.remove(); this.number(); this.changed(); document.getElementById('add-document').focus(); } }, '×'),
      h('textarea', { rows: 3, maxlength: LONG, spellcheck: 'false', 'aria-label': `Text of document ${number}`, oninput: () => this.changed() }));
    row.querySelector('input').value = name;
    row.querySelector('textarea').value = text;
    this.list.append(row);
  }

  // After one was taken away, the others are counted anew.
  number() {
    [...this.list.children].forEach((row, i) => {
      const [name, away, text] = row.children;
      name.placeholder = `Document ${i + 1}`;
      name.setAttribute('aria-label', `Name of document ${i + 1}`);
      away.setAttribute('aria-label', `Take document ${i + 1} away`);
      text.setAttribute('aria-label', `Text of document ${i + 1}`);
    });
  }

  values() {
    return [...this.list.children].map((row) => ({ name: row.querySelector('input').value.trim(), text: row.querySelector('textarea').value }));
  }

  set(given) {
    this.list.replaceChildren();
    given.forEach(({ name, text }) => this.add(name, text));
  }

  async read() {
    for (const file of this.files.files) {
      const text = await file.text();
      if (text.includes('\u0000')) { this.status.fail(`${file.name} is no text.`); continue; }
      if (text.length > LONG) { this.status.fail(`${file.name} has ${text.length.toLocaleString('en')} characters; a document may have ${LONG.toLocaleString('en')}.`); continue; }
      this.add(file.name, text.trim());
    }
    this.files.value = '';
    this.changed();
  }
}
