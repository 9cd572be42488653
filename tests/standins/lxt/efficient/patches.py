"""Patches by LXT's names: they change classes and modules for good, and say whether they did."""

from __future__ import annotations


def patch_method(fn, owner, method_name="forward", keep_original=False):
    if keep_original:
        setattr(owner, f"original_{method_name}", getattr(owner, method_name))
    setattr(owner, method_name, fn)
    return True


def share(x, part):
    """The value of x, and a part of its gradient."""
    return x.detach() + part * (x - x.detach())


def layer_norm_forward(self, x):
    centred = x - x.mean(-1, keepdim=True)
    return self.weight * centred / (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt().detach() + self.bias


def rms_norm_forward(self, x):
    return self.weight * x * (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).rsqrt().detach()


def dropout_forward(self, x):
    return x


def non_linear_forward(self, x):
    return x * (self.original_forward(x) / x).detach()


def gated_mlp_forward(self, x):
    gate = self.gate_proj(x)
    return self.down_proj(share(gate * (self.act_fn(gate) / gate).detach() * self.up_proj(x), 0.5))


def cp_gated_mlp_forward(self, x):
    return self.down_proj(self.act_fn(self.gate_proj(x)).detach() * self.up_proj(x))


def patch_attention(module):
    """A dict in the place of transformers' own table, as LXT has it."""
    module.eager_attention_forward = shared(module.eager_attention_forward)
    module.ALL_ATTENTION_FUNCTIONS = {key: shared(fn) for key, fn in module.ALL_ATTENTION_FUNCTIONS.items()}
    return True


def shared(attention):
    return lambda module, q, k, v, *args, **more: attention(
        module, share(q, 0.25), share(k, 0.25), share(v, 0.5), *args, **more
    )


def patch_cp_attention(module):
    """Written into the table that all models share, as LXT has it."""
    module.eager_attention_forward = constant(module.eager_attention_forward)
    for key, fn in list(module.ALL_ATTENTION_FUNCTIONS.items()):
        module.ALL_ATTENTION_FUNCTIONS[key] = constant(fn)
    return True


def constant(attention):
    return lambda module, q, k, v, *args, **more: attention(module, q.detach(), k.detach(), v, *args, **more)
