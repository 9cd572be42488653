"""A rule for an operation: the Bessel function i0, which Headwater has no rule for."""

import torch

from headwater.rules import on, value_of


@on(torch.i0, when="act")
def bessel(scope, call):
    """i0(x) is i0(0) = 1 plus its input times a constant, [(i0(x) - 1) / x]; the 1 is a constant of the model."""
    x, value = call.args[0], call.run().detach()
    result = value_of(value, gradient_of=x * ((value - 1) / x).nan_to_num(0.0).detach())
    scope.source(result, 1.0, "i0(0)")  # a line of the ledger
    return result
