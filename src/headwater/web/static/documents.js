// The documents of a question: each with a name and its text, typed, pasted, or read from files: text, HTML and PDF.

import { post } from './api.js';
import { h } from './dom.js';

const DOCUMENTS = 200; // that one question may have
const LONG = 20_000; // characters of one document
const LARGE = 8_000_000; // bytes of a file
const KINDS = '.txt,.md,.html,.htm,.pdf';

export class DocumentList {
  // `changed()` is called whenever a document was typed into, added or taken away.
  constructor(status, changed) {
    Object.assign(this, { status, changed });
    this.list = h('div', { className: 'document-list' });
    this.files = h('input', { type: 'file', multiple: true, accept: KINDS, className: 'heard', tabindex: -1, 'aria-hidden': 'true', onchange: () => this.read() });
    this.element = h('section', { 'aria-label': 'Documents' }, this.list,
      h('div', { className: 'examples' },
        h('button', { type: 'button', className: 'quiet small', id: 'add-document', onclick: () => { this.add('', ''); this.list.lastElementChild.querySelector('textarea').focus(); this.changed(); } }, 'Add a document'),
        h('button', { type: 'button', className: 'quiet small', onclick: () => this.files.click() }, 'Open files …'), this.files));
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

  // The server reads files, as the command line does. What it refuses is said after the others have been read.
  async read() {
    const refused = [];
    const files = [...this.files.files];
    this.files.value = '';
    for (const file of files) {
      this.status.say(`reading ${file.name} …`);
      try {
        const { name, text } = await this.readFile(file);
        this.add(name, text);
      } catch (error) {
        refused.push(error.message);
      }
    }
    this.changed();
    if (refused.length) this.status.fail(refused.join(' '));
  }

  async readFile(file) {
    if (file.size > LARGE) throw new Error(`${file.name} has ${file.size.toLocaleString('en')} bytes; a file may have ${LARGE.toLocaleString('en')}.`);
    return post('/api/answer/document', { name: file.name.slice(-200), content: await inBase64(file) });
  }
}

const inBase64 = (file) => new Promise((found, failed) => {
  const reader = new FileReader();
  reader.onload = () => found(reader.result.slice(reader.result.indexOf(',') + 1));
  reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
  reader.readAsDataURL(file);
});
