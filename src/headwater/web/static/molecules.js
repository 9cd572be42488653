// Molecules: a SMILES string, its atoms and bonds coloured.

import { examples } from './choosing.js';
import { debounced, h } from './dom.js';
import { PictureView } from './picture.js';
import { state } from './state.js';

const EXAMPLES = [
  ['verubecestat', 'CN1C(=N[C@](CS1(=O)=O)(C)C2=C(C=CC(=C2)NC(=O)C3=NC=C(C=C3)F)F)N'],
  ['lanabecestat', 'CC#CC1=CC(=CN=C1)C2=CC3=C(CC4(C35N=C(C(=N5)N)C)CCC(CC4)OC)C=C2'],
  ['aspirin', 'CC(=O)Oc1ccccc1C(=O)O'],
  ['caffeine', 'Cn1cnc2c1c(=O)n(C)c(=O)n2C'],
  ['ibuprofen', 'CC(C)Cc1ccc(cc1)C(C)C(=O)O'],
];

export class MoleculeView extends PictureView {
  constructor(about) {
    super(about, { kind: 'molecule', short: 'mol', unit: 'atom' });
  }

  input() {
    this.box = h('input', { type: 'text', id: 'smiles', className: 'wide', maxlength: 400, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off' });
    this.box.addEventListener('input', debounced(300, () => this.typed()));
    return [h('h1', { className: 'heard' }, 'Explain a molecule'), h('label', { for: 'smiles', className: 'big' }, 'A molecule as SMILES'), this.box];
  }

  given() {
    return examples('Examples', EXAMPLES, (smiles) => { this.box.value = smiles; this.typed(); });
  }

  typed() {
    state.set({ smiles: this.box.value });
    this.explain();
  }

  restore() { this.box.value = state.get('smiles', EXAMPLES[0][1]); }

  lacks() { return 'There is no molecule: write one as SMILES, or choose an example.'; }

  data() { return this.box.value.trim() ? { smiles: this.box.value.trim() } : null; }
}
