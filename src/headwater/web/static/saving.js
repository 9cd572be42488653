// Any view as a file. Pages and numbers come from the server; drawings are made of what is on the screen.

import { fetched, file } from './api.js';
import { h } from './dom.js';
import { slide } from './slide.js';

export const FORMS = { html: 'Page', svg: 'SVG', png: 'PNG', json: 'JSON' };

function hand(blob, name) {
  const link = h('a', { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A drawing as pixels: `scale` for each that it says it has.
async function painted(drawing, scale = 1) {
  const url = URL.createObjectURL(drawing);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = h('canvas');
    canvas.width = image.naturalWidth * scale;
    canvas.height = image.naturalHeight * scale;
    const pen = canvas.getContext('2d');
    pen.fillStyle = '#fff';
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, fail) => { canvas.toBlob((made) => (made ? done(made) : fail(new Error('The picture is too large to be painted: save it as SVG.'))), 'image/png'); });
  } finally {
    URL.revokeObjectURL(url);
  }
}

// `ask()` gives {path, body, name, query} of what is on the screen, or nothing where nothing is. Results on disk have
// `files`: the address of each form instead, also of the drawing where a page in a frame is on the screen (`framed`);
// what was put together here has `values`.
export function saver(ask, status, forms = FORMS) {
  const element = h('div', { className: 'save', role: 'group', 'aria-label': 'Save this view' });
  const numbers = (values) => new Blob([JSON.stringify(values, null, 1)], { type: 'application/json' });
  const save = async (form) => {
    const found = ask();
    if (!found) { status.say('There is nothing to save yet.'); return; }
    const { path, body, name, query = '', files, values, framed } = found;
    const drawn = () => (framed ? fetched(files.svg) : new Blob([slide(element)], { type: 'image/svg+xml' }));
    const made = {
      svg: drawn, png: async () => painted(await drawn(), framed ? 2 : 1),
    }[form] ?? (() => (values ? numbers(values) : files ? fetched(files[form]) : file(`${path}?form=${form}${query}`, body)));
    try {
      hand(await made(), `headwater-${name}.${form}`);
      status.say(`saved headwater-${name}.${form}`);
    } catch (error) {
      status.fail(error.message);
    }
  };
  element.append(h('span', { className: 'soft' }, 'Save as'), ...Object.entries(forms).map(([form, name]) =>
    h('button', { type: 'button', className: 'quiet', 'data-save': form, onclick: () => save(form) }, name)));
  return element;
}
