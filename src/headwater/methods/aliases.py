"""Other names that methods go by in papers and other libraries, and names that could be several."""

from __future__ import annotations

from collections.abc import Iterable

ALIASES = {
    "attention-flow": "a-flow",
    "attention-rollout": "rollout",
    "attn-lrp": "attnlrp",
    "chefer": "gae",
    "context-cite": "contextcite",
    "deep-lift": "deeplift",
    "erasure": "leave-one-out",
    "expected-gradients": "gradient-shap",
    "feature-ablation": "occlusion",
    "generic-attention-explainability": "gae",
    "gradient": "saliency",
    "gradient-x-input": "gi",
    "gradients": "saliency",
    "gradientshap": "gradient-shap",
    "gradientxinput": "gi",
    "gradshap": "gradient-shap",
    "gradxinput": "gi",
    "gxi": "gi",
    "ig": "integrated-gradients",
    "information-flow-routes": "ifr",
    "input-x-gradient": "gi",
    "inputxgradient": "gi",
    "integratedgradients": "integrated-gradients",
    "ixg": "gi",
    "kernelshap": "kernel-shap",
    "loo": "leave-one-out",
    "shapley": "shapley-sampling",
    "shapley-values": "shapley-sampling",
    "smooth-grad": "smoothgrad",
    "vanilla-gradient": "saliency",
}

# Names that could be one of several methods, whose numbers differ: the answer says which there are.
AMBIGUOUS = {
    "attention": "'a-last' (the last layer), 'a-mean' (the mean over layers), 'rollout', 'a-flow' (through all layers)",
    "shap": "'kernel-shap' (regression), 'shapley-sampling' (permutations) and 'gradient-shap' (noisy gradients)",
}


def find_alias(name: str, known: Iterable[str]) -> str:
    """The name of ours that a name stands for; itself where it stands for none. `_` is read as `-`."""
    if name in known:
        return name
    plain = name.replace("_", "-")
    return ALIASES.get(plain, plain)
