// Images: from a file, pasted, dropped, or drawn here; patches or pixels coloured.

import { examples } from './choosing.js';
import { h } from './dom.js';
import { PictureView } from './picture.js';
import { state } from './state.js';

const MOST = 6000; // characters of an image that a link holds
const SIDE = 28;
// Digits as strokes between 0 and 1, drawn for this page.
const DIGITS = {
  four: [[[0.62, 0], [0.1, 0.62], [0.95, 0.62]], [[0.68, 0.3], [0.66, 1]]],
  seven: [[[0.05, 0.05], [0.9, 0.03], [0.42, 1]]],
  two: [[[0.1, 0.22], [0.3, 0.02], [0.65, 0.02], [0.82, 0.25], [0.66, 0.52], [0.1, 0.96], [0.95, 0.94]]],
  nine: [[[0.78, 0.2], [0.5, 0], [0.18, 0.16], [0.2, 0.42], [0.5, 0.52], [0.78, 0.3], [0.78, 0.2], [0.7, 1]]],
  'a seven, crossed': [[[0.05, 0.05], [0.9, 0.03], [0.42, 1]], [[0.25, 0.5], [0.85, 0.5]]],
};

export class ImageView extends PictureView {
  constructor(about) {
    super(about, { kind: 'image', short: 'img', unit: 'patch', png: true });
  }

  get draws() { return this.model.name === 'headwater/mnist'; }

  input() {
    this.level = h('select', { onchange: () => { state.set({ level: this.level.value === 'patches' ? '' : 'pixels' }); this.explain(); } },
      h('option', { value: 'patches' }, 'patches'), h('option', { value: 'pixels' }, 'pixels'));
    this.file = h('input', { type: 'file', id: 'file', accept: 'image/png,image/jpeg,image/webp,image/gif,image/bmp', onchange: () => this.take(this.file.files[0]) });
    const drop = h('div', { className: 'drop' },
      h('label', { for: 'file', className: 'big' }, 'An image from a file; or paste or drop one here'), this.file);
    drop.addEventListener('dragover', (event) => event.preventDefault());
    drop.addEventListener('drop', (event) => { event.preventDefault(); this.take(event.dataTransfer.files[0]); });
    document.addEventListener('paste', (event) => {
      const found = [...event.clipboardData.files].find((one) => one.type.startsWith('image/'));
      if (found && !this.element.hidden) this.take(found);
    });
    return [h('h1', { className: 'heard' }, 'Explain an image'), h('div', { className: 'sources' }, this.draws ? this.pad() : null, drop)];
  }

  extra() { return h('label', {}, 'by', this.level); }

  given() {
    return this.draws ? examples('Examples', Object.entries(DIGITS), (strokes) => { this.strokes = strokes; this.drawn(); }) : h('span');
  }

  // A pad to draw a digit on, made small and centred as the digits are that the model has learnt from.
  pad() {
    this.strokes = [];
    this.canvas = h('canvas', { width: 200, height: 200, 'aria-label': 'Draw a digit here', role: 'img' });
    const at = (event) => [event.offsetX / this.canvas.clientWidth, event.offsetY / this.canvas.clientHeight];
    this.canvas.addEventListener('pointerdown', (event) => {
      if (!this.own) this.strokes = [];
      this.own = true;
      this.canvas.setPointerCapture(event.pointerId);
      this.strokes = [...this.strokes, [at(event)]];
    });
    this.canvas.addEventListener('pointermove', (event) => {
      if (!(event.buttons & 1) || !this.strokes.length) return;
      this.strokes.at(-1).push(at(event));
      paint(this.canvas, this.strokes, 14);
    });
    this.canvas.addEventListener('pointerup', () => this.drawn(true));
    const clear = h('button', { type: 'button', className: 'quiet small', onclick: () => this.wipe() }, 'Clear');
    return h('div', { className: 'pad' }, h('span', { className: 'big' }, 'Draw a digit'), this.canvas, clear);
  }

  lacks() { return this.draws ? 'There is no image: draw a digit, choose an example, or open a file.' : 'There is no image: open a file, or paste or drop one.'; }

  wipe() {
    this.strokes = [];
    this.image = undefined;
    paint(this.canvas, [], 14);
    state.set({ image: '', called: '' });
    this.explain();
  }

  drawn(own = false) {
    this.own = own;
    if (!this.strokes.some((stroke) => stroke.length > 1)) return;
    paint(this.canvas, own ? this.strokes : centred(this.strokes, 0.72), 14);
    const small = h('canvas', { width: SIDE, height: SIDE });
    const large = h('canvas', { width: SIDE * 8, height: SIDE * 8 });
    paint(large, centred(this.strokes, 20 / SIDE), 20);
    const pen = small.getContext('2d');
    pen.imageSmoothingQuality = 'high';
    pen.drawImage(large, 0, 0, SIDE, SIDE);
    this.set(small.toDataURL('image/png'), 'drawing');
  }

  take(found) {
    if (!found) return;
    const reader = new FileReader();
    reader.addEventListener('load', () => this.set(reader.result, found.name));
    reader.readAsDataURL(found);
  }

  set(image, name) {
    Object.assign(this, { image, called: name.slice(0, 200) });
    const fits = image.length <= MOST;
    state.set({ image: fits ? image : '', called: fits ? this.called : '' });
    this.explain();
    if (!fits) this.status.say('This image is too large for a link: send the file with it.');
  }

  restore() {
    this.level.value = state.get('level', 'patches');
    const kept = state.get('image');
    if (kept) Object.assign(this, { image: kept, called: state.get('called', 'image') });
    else if (!this.image && this.draws) { this.strokes = DIGITS.four; this.drawn(); }
  }

  data() { return this.image ? { image: this.image, name: this.called, level: this.level.value } : null; }
}

function paint(canvas, strokes, width) {
  const pen = canvas.getContext('2d');
  pen.fillStyle = '#000';
  pen.fillRect(0, 0, canvas.width, canvas.height);
  Object.assign(pen, { strokeStyle: '#fff', lineWidth: width, lineCap: 'round', lineJoin: 'round' });
  for (const stroke of strokes) {
    pen.beginPath();
    stroke.forEach(([x, y], i) => (i ? pen.lineTo(x * canvas.width, y * canvas.height) : pen.moveTo(x * canvas.width, y * canvas.height)));
    pen.stroke();
  }
}

// The strokes in the middle, their longer side `share` of the whole.
function centred(strokes, share) {
  const points = strokes.flat();
  const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [width, height] = [Math.max(...xs) - left, Math.max(...ys) - top];
  const scale = share / Math.max(width, height, 0.01);
  return strokes.map((stroke) => stroke.map(([x, y]) => [0.5 + (x - left - width / 2) * scale, 0.5 + (y - top - height / 2) * scale]));
}
