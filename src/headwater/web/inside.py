"""Parts of a model for one text: heads, layers and neurons, a head between words, and what replacing parts does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..api.circuit import circuit
from ..api.head_pairs import read_head_pairs
from ..engine.kind import choose_output
from ..errors import DataError, InputError, NotApplicable
from ..inputs.inside_demand import find_layer, find_stacks
from ..inputs.readouts import logits_of
from ..plurals import say_count
from ..results.circuit import WORDS, Circuit, CircuitNode
from ..results.explanation import Explanation
from ..results.inside import CutLedger, HeadPairs, Inside, Node, NodeGroup
from ..viz import inside_page
from ..viz.circuit_chart import draw_circuit, without_marks
from ..viz.colour import palette
from ..viz.inside_page import cut_sum
from ..viz.reading import readable, visible
from .inside_schemas import (
    CircuitAnswer,
    CircuitAsked,
    CircuitEdgeShown,
    CircuitNodeShown,
    CutShown,
    HeadAnswer,
    HeadAsked,
    HeadGroup,
    InsideAnswer,
    InsideAsked,
    InsideRun,
    KindRefused,
    LayerGroup,
    NeuronGroup,
    NeuronShown,
    NodeAsked,
    PatchAnswer,
    PatchAsked,
    TokenShown,
    UnitsAnswer,
    UnitShown,
)
from .models import Loaded
from .reports import write_json
from .schemas import ClassShare
from .stores import Store
from .stores.runs import RunStore
from .texts import cells_of, class_shares, logits_in, outputs_for

KINDS = ("heads", "neurons", "layers")
NEURONS, UNITS, TOKENS, NEXT = 20, 20, 6, 5  # that are listed
COUNTED = 2_000  # rows of a run that are added up
LONGEST = 256  # tokens of a text whose pairs are shown

Found = tuple[Explanation, dict[str, str]]


def explain_inside(loaded: Loaded, ask: InsideAsked) -> Found:
    """The explanation with all kinds of parts that can be told, and why the others cannot."""
    try:
        return explain_kinds(loaded, ask, KINDS), {}
    except NotApplicable:
        pass
    made: list[Explanation] = []
    refused: dict[str, str] = {}
    for kind in KINDS:
        try:
            made.append(explain_kinds(loaded, ask, (kind,)))
        except NotApplicable as error:
            refused[kind] = str(error)
    if not made:
        raise NotApplicable(next(iter(refused.values())))
    groups = tuple(group for e in made if e.inside is not None for group in e.inside.groups)
    return replace(made[0], inside=Inside(groups, made[0].tokens)), refused


def explain_kinds(loaded: Loaded, ask: InsideAsked, kinds: Sequence[str]) -> Explanation:
    found: Explanation = loaded.session.explain(
        ask.text, inside=[*kinds], **text_options(loaded, ask), method=ask.method
    )
    return found


def text_options(loaded: Loaded, ask: InsideAsked) -> dict[str, Any]:
    """Of one pass of the model: a text that is too long is cut."""
    return {"tokenizer": loaded.reader, "target": ask.target, "output": ask.output, "truncate": True}


def inside_answer(loaded: Loaded, ask: InsideAsked, found: Found) -> InsideAnswer:
    e, refused = found
    inside = e.inside
    assert inside is not None
    by_kind = {kind: [group for group in inside.groups if group.kind == kind] for kind in KINDS}
    return InsideAnswer(
        target=name_answer(loaded, e.target),
        output=e.output,
        score=e.score,
        prediction=e.prediction and name_answer(loaded, e.prediction),
        method=e.method,
        model=e.provenance.model,
        classes=likely_answers(loaded, ask.text),
        cells=cells_of(e, "token"),
        heads=[head_group(inside, group) for group in by_kind["heads"]],
        layers=[layer_group(inside, group) for group in by_kind["layers"]],
        neurons=[show_neuron(inside, node) for node in inside.top(NEURONS, "neurons")] if by_kind["neurons"] else [],
        neuron_groups=[neuron_group(inside, group) for group in by_kind["neurons"]],
        refused=[KindRefused(kind=kind, reason=reason) for kind, reason in refused.items()],
    )


def likely_answers(loaded: Loaded, text: str) -> list[ClassShare]:
    """The likeliest classes with their probabilities; of a language model the likeliest next tokens."""
    if not loaded.generates:
        return class_shares(loaded, logits_in(outputs_for(loaded, text)))
    ((out, _),) = outputs_for(loaded, text, window=False)
    logits = logits_of(out)[0, -1].double()
    shares = logits.softmax(-1)
    best = logits.topk(min(NEXT, len(logits))).indices.tolist()
    names = map(readable, loaded.reader.convert_ids_to_tokens(best))
    return [
        ClassShare(name=name, logit=float(logits[i]), probability=float(shares[i]))
        for name, i in zip(names, best, strict=True)
    ]


def name_answer(loaded: Loaded, said: str) -> str:
    """A class by its name; a token without its tokenizer's marks."""
    return readable(said) if loaded.generates else said


def head_group(inside: Inside, group: NodeGroup) -> HeadGroup:
    return HeadGroup(
        label=visible(inside.label(group)),
        module=group.place,
        relevance=group.units.tolist(),
        positions=group.relevance.T.tolist() if group.by_token else [],
        cut=show_cut(group.ledger),
    )


def layer_group(inside: Inside, group: NodeGroup) -> LayerGroup:
    return LayerGroup(
        label=visible(inside.label(group)),
        module=group.place,
        relevance=float(group.units.sum()),
        positions=group.relevance.sum(1).tolist() if group.by_token else [],
        cut=show_cut(group.ledger),
    )


def neuron_group(inside: Inside, group: NodeGroup) -> NeuronGroup:
    return NeuronGroup(
        label=visible(inside.label(group)), module=group.place, count=len(group.units), cut=show_cut(group.ledger)
    )


def show_neuron(inside: Inside, node: Node) -> NeuronShown:
    """A neuron with the token at which it has most relevance."""
    group = next(one for one in inside.groups if one.kind == "neurons" and one.place == node.module)
    assert node.unit is not None
    amounts = group.relevance[:, node.unit]
    peak = int(amounts.abs().argmax()) if group.by_token else None
    return NeuronShown(
        name=visible(node.name),
        module=node.module,
        unit=node.unit,
        relevance=node.relevance,
        token=peak,
        at_token=None if peak is None else float(amounts[peak]),
    )


def show_cut(cut: CutLedger | None) -> CutShown | None:
    if cut is None:
        return None
    lines = ("nodes", "by_passing", "sources", "readout", "unaccounted", "score", "closed")
    return CutShown(name=visible(cut.name), sum=cut_sum(cut), **{name: getattr(cut, name) for name in lines})


def read_pairs(loaded: Loaded, ask: InsideAsked) -> list[HeadPairs]:
    """Every head between words. Where words are many, pairs are too many to be looked at."""
    found = read_head_pairs(
        loaded.session.model, ask.text, method=ask.method, dtype=loaded.session.dtype, **text_options(loaded, ask)
    )
    if any(max(one.attention.shape[-2:]) > LONGEST for one in found):
        raise InputError(f"the text has more than {LONGEST} tokens: pairs of words are shown of shorter ones.")
    return found


def head_answer(found: Sequence[HeadPairs], ask: HeadAsked) -> HeadAnswer:
    own = [one for one in found if one.module == ask.module]
    if len(own) != 1:
        raise NotApplicable(f"the attention of {ask.module!r} cannot be read between words: it has {len(own)} maps.")
    if ask.head >= len(own[0].attention):
        raise InputError(
            f"{ask.module!r} has {say_count(len(own[0].attention), 'head')}, and head {ask.head} was asked for."
        )
    return HeadAnswer(
        module=ask.module,
        head=ask.head,
        attention=own[0].attention[ask.head].tolist(),
        relevance=own[0].relevance[ask.head].tolist(),
    )


def patch_nodes(loaded: Loaded, ask: PatchAsked) -> PatchAnswer:
    """The score and the probability with all of these parts replaced."""
    nodes = [name_node(loaded, one) for one in ask.nodes]
    options = {**text_options(loaded, ask), "with_": "zeros" if ask.replaced_by == "zeros" else [ask.text]}
    score = loaded.session.patch(ask.text, nodes, **options)
    share = loaded.session.patch(ask.text, nodes, **{**options, "output": "probability", "target": score.target})
    return PatchAnswer(
        nodes=[visible(name) for name in score.nodes],
        target=name_answer(loaded, score.target),
        output=choose_output(ask.output, loaded.model),
        score=score.score,
        patched=score.patched,
        probability=share.score,
        patched_probability=share.patched,
        prediction=score.prediction and name_answer(loaded, score.prediction),
        patched_prediction=score.patched_prediction and name_answer(loaded, score.patched_prediction),
    )


def name_node(loaded: Loaded, one: NodeAsked) -> Node:
    """A node as it is called: by its layer, where the model has one stack of layers."""
    stacks = find_stacks(loaded.model)
    found = find_layer(dict(stacks), one.module) if len(stacks) == 1 else None
    place = one.module if found is None else f"layer {found[1]}"
    return Node(f"{place} {one.kind[:-1]} {one.unit}", 0.0, one.kind, one.module, None, one.unit)


def inside_runs(stores: Sequence[Store]) -> list[InsideRun]:
    """The stored runs that have parts of a model in their columns. One that cannot be read is left out."""
    found = []
    for store in stores:
        if isinstance(store, RunStore):
            try:
                run = store.run
            except DataError:
                continue
            if run.inside_columns:
                kinds = [kind for kind in run.inside_columns if kind in ("heads", "neurons")]
                model = visible(run.provenance.model)
                found.append(InsideRun(id=store.id, name=visible(store.name), model=model, kinds=kinds, rows=len(run)))
    return found


def units_answer(store: Store, kind: str) -> UnitsAnswer:
    """The heads or neurons of a run with most relevance, and the tokens at which they have it."""
    if not isinstance(store, RunStore):
        raise DataError(f"{store.id!r} is no run, so it holds no {kind}.")
    run = store.run
    units = store.units(kind, UNITS, TOKENS, COUNTED)
    return UnitsAnswer(
        kind=kind,
        rows=min(len(run), COUNTED),
        of=len(run),
        units=[
            UnitShown(
                name=visible(f"{one.module if one.layer is None else f'layer {one.layer}'} {kind[:-1]} {one.unit}"),
                module=one.module,
                unit=one.unit,
                mean=one.mean,
                size=one.size,
                tokens=[TokenShown(text=visible(t.text), rows=t.rows, total=t.total) for t in one.tokens],
            )
            for one in units
        ],
    )


def inside_report(e: Explanation, patched: PatchAnswer | None, by: str, form: str, colours: str) -> str:
    if form == "json":
        more = {} if patched is None else {"patched": {"replaced_by": by, **patched.model_dump()}}
        return write_json({**e.to_dict(), **more})
    with palette(colours):
        return inside_page.page(
            e, more="" if patched is None else inside_page.patch_paragraph(*describe_patch(patched, by))
        )


def describe_patch(found: PatchAnswer, by: str) -> tuple[list[str], str]:
    """The parts that were replaced, and what happened, in words."""
    how = "zeros" if by == "zeros" else "their mean over the tokens of the text"
    said = f"replaced by {how}: {found.target} {found.score:+.2f} → {found.patched:+.2f}"
    if found.probability is not None and found.patched_probability is not None:
        said += f", probability {found.probability:.1%} → {found.patched_probability:.1%}"
    if found.patched_prediction != found.prediction:
        said += f"; the prediction is then {found.patched_prediction}"
    return found.nodes, said


def trace_circuit(loaded: Loaded, ask: CircuitAsked) -> CircuitAnswer:
    session = loaded.session
    options = {**text_options(loaded, ask), "dtype": session.dtype}
    return circuit_answer(circuit(session.model, ask.text, nodes=ask.nodes, method=ask.method, **options))


def circuit_answer(found: Circuit) -> CircuitAnswer:
    numbers = {node.name: number for number, node in enumerate(found.nodes)}
    lines = ("kind", "relevance", "sources", "from_left_out", "to_left_out")
    return CircuitAnswer(
        svg=draw_circuit(found),
        nodes=[
            CircuitNodeShown(label=visible(name_part(node)), **{name: getattr(node, name) for name in lines})
            for node in found.nodes
        ],
        edges=[
            CircuitEdgeShown(start=numbers[edge.start], end=numbers[edge.end], relevance=edge.relevance)
            for edge in found.edges
        ],
        left_out=found.left_out.parts,
        closed=found.closed,
    )


def name_part(node: CircuitNode) -> str:
    """A word is called by itself, a part by its name."""
    return without_marks(node.text) if node.kind == WORDS else node.name
