// Any view as a file. Pages and drawings come from the server; a PNG is the drawing, painted here.

import { fetched, file } from './api.js';
import { h } from './dom.js';

export const FORMS = { html: 'Page', svg: 'SVG', png: 'PNG', json: 'JSON' };

function hand(blob, name) {
  const link = h('a', { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function painted(drawing) {
  const url = URL.createObjectURL(new Blob([await drawing.text()], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = h('canvas');
    canvas.width = image.naturalWidth * 2;
    canvas.height = image.naturalHeight * 2;
    const pen = canvas.getContext('2d');
    pen.fillStyle = '#fff';
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => { canvas.toBlob(done, 'image/png'); });
  } finally {
    URL.revokeObjectURL(url);
  }
}

// `ask()` gives {path, body, name, query, png} of what is on the screen, or nothing where nothing is. Results on disk
// have `files`: the address of each form instead.
export function saver(ask, status, forms = FORMS) {
  const save = async (form) => {
    const found = ask();
    if (!found) return;
    const { path, body, name, query = '', png = false, files } = found;
    const get = (asked) => (files ? fetched(files[asked]) : file(`${path}?form=${asked}${query}`, body));
    try {
      const made = form === 'png' && !png ? await painted(await get('svg')) : await get(form);
      hand(made, `headwater-${name}.${form}`);
      status.say(`saved headwater-${name}.${form}`);
    } catch (error) {
      status.fail(error.message);
    }
  };
  return h('div', { className: 'save', role: 'group', 'aria-label': 'Save this view' },
    h('span', { className: 'soft' }, 'Save as'),
    Object.entries(forms).map(([form, name]) => h('button', { type: 'button', className: 'quiet', 'data-save': form, onclick: () => save(form) }, name)));
}
