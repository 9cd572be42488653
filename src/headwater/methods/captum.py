"""Methods of captum, through the same `explain`: gradients along a path, and perturbations of tokens.

The input that stands for "nothing there" is every token replaced by [UNK] (else [MASK], else padding), zero for
images and bare tensors. Samples go one by one and without padding, so that neither batch nor padding change a number.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..engine.forward import Run
from ..engine.outcome import Outcome
from ..errors import require_extra
from ..inputs.hooks import detach, find_hooks_of
from ..inputs.readouts import ScoreReading
from ..inputs.restoring import outside_inference, undone
from ..results.ledger import BASELINE_SCORE
from .parameters import Parameter, whole_number
from .parameters import baseline as baseline_parameter
from .parameters import samples as count_samples
from .perturbation import (
    Function,
    choose_token,
    function_of,
    join_found,
    nothing,
    per_feature,
    positions_mask,
    split_samples,
)
from .random import generator_of
from .registry import Method, register_with_parameters

STEPS, MOST_STEPS = 32, 256  # of integrated gradients
SAMPLES = 20  # of gradient-shap and smoothed paths
PERTURBATIONS = 200  # of kernel-shap and lime
PERMUTATIONS = 25  # of shapley-sampling
BASELINE = baseline_parameter()


def captum() -> Any:
    with require_extra("this method", "captum"):
        import captum.attr
    return captum.attr


Attribution = Callable[..., Tensor]  # (captum.attr, f, x, baseline), and parameters by keyword


def of_captum(
    name: str, summary: str, *parameters: Parameter, complete: bool = False
) -> Callable[[Attribution], Attribution]:
    """Register an attribution of one sample: (captum.attr, f, x, baseline) -> relevance with the shape of x.

    Its parameters are keyword arguments of the same name, but for `baseline`, which says what the baseline is. A
    `complete` one sums to f(x) - f(baseline), so that f(baseline) is a constant in its ledger.
    """

    def decorate(attribute: Attribution) -> Attribution:
        def make(baseline: str | None = None, **given: Any) -> Method:
            def run(job: Run) -> Outcome:
                package, chosen = captum(), partial(attribute, **given)
                parts = [one_sample(part, package, chosen, baseline) for part in split_samples(job)]
                outcome = join_samples(parts, job)
                return outcome if complete else replace(outcome, constants={})

            return Method(name, summary, run, group="captum")

        register_with_parameters(name, parameters, make)
        return attribute

    return decorate


def one_sample(run: Run, package: Any, attribute: Attribution, chosen: str | None = None) -> Sample:
    with outside_inference(), torch.enable_grad(), seed_generators(run), hide_warnings():
        function, reading = function_of(run)
        x = function.inputs.leaf.detach().clone().requires_grad_(True)
        baseline = nothing(run, function.inputs, choose_token(run, chosen))
        relevance = attribute(package, function, x, baseline).detach()
        with torch.no_grad():
            start = float(function(baseline))
    return Sample(reading, relevance, start)


@contextmanager
def seed_generators(run: Run) -> Iterator[None]:
    """Captum draws from torch's and numpy's own generators: both are set by the sample, and put back."""
    number = int(torch.randint(2**31, (1,), generator=generator_of(run.batch, 0, run.seed)))
    numpy, own = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    with undone(partial(np.random.set_state, numpy)), undone(partial(torch.set_rng_state, own)):
        torch.default_generator.manual_seed(number)
        np.random.seed(number)  # noqa: NPY002
        yield


@contextmanager
def hide_warnings() -> Iterator[None]:
    """Captum says at every call that it sets requires_grad."""
    block = warnings.catch_warnings()

    def heard() -> None:
        with suppress(RuntimeError, AttributeError):  # it was not entered, or not quite
            block.__exit__(None, None, None)

    with undone(heard):
        block.__enter__()
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Sample:
    reading: ScoreReading
    relevance: Tensor
    start: float  # the score of the baseline


def join_samples(parts: list[Sample], job: Run) -> Outcome:
    positions = [sum_features(part.relevance[0], job) for part in parts]
    return join_found([part.reading for part in parts], positions, {BASELINE_SCORE: [p.start for p in parts]})


def sum_features(relevance: Tensor, job: Run) -> Tensor:
    """One number per position; a bare tensor keeps its shape."""
    return relevance.cpu() if job.batch.tensor is not None else relevance.sum(-1).cpu()


@of_captum("saliency", "size of the gradient (Simonyan et al. 2014)")
def saliency(package: Any, f: Function, x: Tensor, baseline: Tensor) -> Tensor:
    found: Tensor = package.Saliency(f).attribute(x)
    return found


@of_captum(
    "integrated-gradients",
    f"path from [UNK], {STEPS} steps or more (Sundararajan et al. 2017)",
    whole_number(
        "steps", f"{STEPS}, doubled up to {MOST_STEPS} until it adds up", "steps along the path, exactly", 1, 100_000
    ),
    BASELINE,
    complete=True,
)
def integrated_gradients(package: Any, f: Function, x: Tensor, baseline: Tensor, steps: int | None = None) -> Tensor:
    """Relevance sums to f(x) - f(baseline). Steps are doubled until it does, to a thousandth, or there are 256."""
    with torch.no_grad():
        rise = float(f(x) - f(baseline))
    most, method = steps or MOST_STEPS, package.IntegratedGradients(f)
    steps = steps or STEPS
    while True:
        found: Tensor = method.attribute(x, baselines=baseline, n_steps=steps, internal_batch_size=STEPS)
        if steps >= most or abs(float(found.detach().double().sum()) - rise) <= 1e-3 * max(abs(rise), 0.1):
            return found
        steps *= 2


_NOTED = ("input", "output")  # what DeepLift's hooks write on a module


class _Wrapped(torch.nn.Module):
    """What DeepLift wants: a module whose activations are modules inside it."""

    def __init__(self, f: Function) -> None:
        super().__init__()
        self.model, self.f = f.run.model, f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


@of_captum("deeplift", "differences from [UNK] through activations (Shrikumar et al. 2017)", BASELINE, complete=True)
def deeplift(package: Any, f: Function, x: Tensor, baseline: Tensor) -> Tensor:
    modules = list(f.run.model.modules())
    free = [(module, name) for module in modules for name in _NOTED if name not in module.__dict__]
    with undone(lambda: clear_modules(modules, free)):
        found: Tensor = package.DeepLift(_Wrapped(f).eval()).attribute(x, baselines=baseline)
    return found


def clear_modules(modules: list[torch.nn.Module], free: list[tuple[torch.nn.Module, str]]) -> None:
    """Captum's hooks are taken off the modules, and the values that these note there."""
    detach(find_hooks_of("captum", modules))
    for module, name in free:
        module.__dict__.pop(name, None)


@of_captum(
    "gradient-shap",
    f"expected gradients over {SAMPLES} noisy paths (Lundberg & Lee 2017)",
    count_samples(SAMPLES, "noisy paths"),
    BASELINE,
    complete=True,
)
def gradient_shap(package: Any, f: Function, x: Tensor, baseline: Tensor, samples: int = SAMPLES) -> Tensor:
    spread = float((x - baseline).std()) * 0.1
    found: Tensor = package.GradientShap(f).attribute(x, baselines=baseline, n_samples=samples, stdevs=spread)
    return found


def ablate_positions(algorithm: Any, f: Function, x: Tensor, baseline: Tensor, **options: int) -> Tensor:
    """An algorithm of captum that replaces whole positions by those of the baseline."""
    found: Tensor = algorithm.attribute(
        x, baselines=baseline, feature_mask=positions_mask(f, x), perturbations_per_eval=32, **options
    )
    return per_feature(f, found)


@of_captum("occlusion", "each token replaced by [UNK] alone (Zeiler & Fergus 2014)", BASELINE)
def occlusion(package: Any, f: Function, x: Tensor, baseline: Tensor) -> Tensor:
    return ablate_positions(package.FeatureAblation(f), f, x, baseline)


@of_captum(
    "shapley-sampling",
    f"Shapley values, {PERMUTATIONS} permutations (Strumbelj & Kononenko 2010)",
    count_samples(PERMUTATIONS, "permutations of the tokens"),
    BASELINE,
    complete=True,
)
def shapley_sampling(package: Any, f: Function, x: Tensor, baseline: Tensor, samples: int = PERMUTATIONS) -> Tensor:
    return ablate_positions(package.ShapleyValueSampling(f), f, x, baseline, n_samples=samples)


@of_captum(
    "kernel-shap",
    f"Shapley values by regression, {PERTURBATIONS} samples (Lundberg & Lee 2017)",
    count_samples(PERTURBATIONS, "sets of tokens that are kept", 2),
    BASELINE,
    complete=True,
)
def kernel_shap(package: Any, f: Function, x: Tensor, baseline: Tensor, samples: int = PERTURBATIONS) -> Tensor:
    return ablate_positions(package.KernelShap(f), f, x, baseline, n_samples=samples)


@of_captum(
    "lime",
    f"a sparse linear model around the input, {PERTURBATIONS} samples (Ribeiro et al. 2016)",
    count_samples(PERTURBATIONS, "sets of tokens that are kept", 2),
    BASELINE,
)
def lime(package: Any, f: Function, x: Tensor, baseline: Tensor, samples: int = PERTURBATIONS) -> Tensor:
    from captum._utils.models.linear_model import SkLearnRidge

    sparse = package.Lime(f, interpretable_model=SkLearnRidge(alpha=0.01))
    return ablate_positions(sparse, f, x, baseline, n_samples=samples)
