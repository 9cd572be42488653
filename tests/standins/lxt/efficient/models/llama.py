"""The tables for Llama, by LXT's names."""

from __future__ import annotations

from functools import partial

from torch.nn import Dropout
from transformers.models.llama import modeling_llama

from lxt.efficient import patches

COMMON = {
    modeling_llama.LlamaRMSNorm: partial(patches.patch_method, patches.rms_norm_forward),
    Dropout: partial(patches.patch_method, patches.dropout_forward),
}
attnLRP = {
    **COMMON,
    modeling_llama.LlamaMLP: partial(patches.patch_method, patches.gated_mlp_forward),
    modeling_llama: patches.patch_attention,
}
cp_LRP = {
    **COMMON,
    modeling_llama.LlamaMLP: partial(patches.patch_method, patches.cp_gated_mlp_forward),
    modeling_llama: patches.patch_cp_attention,
}
