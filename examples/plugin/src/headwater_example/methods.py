"""A method: the size of the gradient at every token."""

from headwater.methods import NO_RULES, Outcome, Run, method, propagate


@method("grad-norm", "size of the gradient at every token, without sign")
def grad_norm(run: Run) -> Outcome:
    """`propagate` runs the model once forwards and once backwards; the outcome has score, inputs and gradients."""
    outcome = propagate(run, NO_RULES)
    sizes = outcome.gradients[0].norm(dim=-1)  # [samples, positions]
    return outcome.with_positions([row[real] for row, real in zip(sizes, run.batch.real, strict=True)])
