"""Generated text: every output token's ledger closes, one pass says what many say, and sums are exact."""

from __future__ import annotations

import dataclasses
import random
from copy import deepcopy

import pytest
import tokenizers
import torch
import transformers
from speaker import speaker, talker
from tiny import CASTS

import headwater as hw
from headwater.api import output_text
from headwater.defaults import LANGUAGE_METHOD
from headwater.engine import at_once
from headwater.errors import DataError, EmptyInput, InputError, ModelError, TargetError, UnknownName, UsageError
from headwater.inputs.prompt import tokenise_prompt
from headwater.memory import backends, saved_tensors
from headwater.viz.generation import page

PROMPT = "the capital of France is"
approx = pytest.approx
DECODERS = ("llama", "gpt2", "qwen3")
SEQ2SEQ = ("t5-lm", "bart-lm")


def tokenizer_of_bytes():
    """Every byte is a token."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner)


BYTES = tokenizer_of_bytes()


def tolerance(name: str) -> float:
    """In float64; a model that casts to float32 inside has that precision."""
    return 1e-6 if name in CASTS else 1e-9


def made(name: str = "gpt2", prompt: str | None = PROMPT, **options) -> hw.Generation:
    options = {"max_new_tokens": 4, "method": "lrp", "sinks": "show"} | options
    return hw.explain_generation(talker(name), prompt, tokenizer=speaker(), **options)


@pytest.mark.crossed
@pytest.mark.parametrize("method", ["lrp", "lrp-query", "lrp-language", "lrp-halves", "lrp-seq2seq"])
@pytest.mark.parametrize("score", ["logit", "logprob", "contrast"])
@pytest.mark.parametrize("name", [*DECODERS, *SEQ2SEQ])
def test_the_ledger_of_every_output_token_closes(name, score, method):
    found = made(name, score=score, method=method)
    assert len(found) == len(found.output) == 4
    for row, ledger in zip(found.relevance, found.ledgers, strict=True):
        assert ledger.error < tolerance(name)
        assert float(row.sum()) == approx(ledger.inputs, abs=1e-12)


def test_a_difference_is_judged_by_what_it_is_the_difference_of():
    ledger = made("gpt2", score="contrast").ledgers[0]
    assert ledger.magnitude >= abs(ledger.score)
    assert ledger.error == abs(ledger.unaccounted) / max(
        ledger.magnitude, dataclasses.replace(ledger, magnitude=0).size
    )
    assert made("gpt2").ledgers[0].magnitude >= abs(made("gpt2").ledgers[0].score)
    assert made("gpt2", score="logit").ledgers[0].magnitude == 0


@pytest.mark.parametrize("name", DECODERS)
def test_without_rules_it_stays_open(name):
    assert min(ledger.error for ledger in made(name, method="gi").ledgers) > 1e-3


@pytest.mark.parametrize("name", [*DECODERS, *SEQ2SEQ])
def test_nothing_comes_from_what_is_said_later(name):
    found = made(name)
    for number, row in enumerate(found.relevance):
        assert bool((row[found.prompt + number :] == 0).all())
        assert bool((row[: found.prompt + number] != 0).all())


@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "gi"])
@pytest.mark.parametrize("name", DECODERS)
def test_one_pass_says_what_one_pass_a_token_says(name, method):
    found = made(name, method=method)
    ids = speaker()(PROMPT)["input_ids"]
    output = speaker().convert_tokens_to_ids(found.tokens[found.prompt :])
    for number, token in enumerate(output):
        fields = {"input_ids": torch.tensor([[*ids, *output[:number]]])}
        plain = hw.explain(talker(name), fields, method=method, target=hw.Token(-1, token))[0]
        assert found.relevance[number, : found.prompt + number].tolist() == approx(
            plain.relevance.tolist(), abs=10 * tolerance(name)
        )
        assert found.scores[number] == approx(plain.score, abs=10 * tolerance(name))
        assert dict(found.ledgers[number].biases) == approx(dict(plain.ledger.biases), abs=10 * tolerance(name))


def passes(model, **options) -> int:
    seen = []
    hook = model.register_forward_pre_hook(lambda *_: seen.append(1))
    try:
        hw.explain_generation(model, PROMPT, tokenizer=speaker(), answer=" Paris is a good film", **options)
    finally:
        hook.remove()
    return len(seen)


def test_one_forward_pass_serves_all_output_tokens_unless_memory_is_short():
    model = deepcopy(talker("llama"))
    assert passes(model) > 1  # at its first explanation a model is looked at closely
    assert passes(model) == 1
    assert passes(model, tokens_at_once=2) == 3
    assert passes(model, tokens_at_once=1) == 5


@pytest.mark.parametrize("name", ["llama", "gpt2", "bart-lm"])
@pytest.mark.parametrize("size", [1, 3])
def test_pieces_say_what_the_whole_says(name, size):
    whole, pieces = made(name), made(name, tokens_at_once=size)
    assert torch.allclose(pieces.relevance, whole.relevance, rtol=0, atol=10 * tolerance(name))
    assert pieces.probabilities == approx(whole.probabilities, abs=tolerance(name))


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_what_each_token_adds_to_a_long_text(seed, fresh):
    """As if all the text before it were decoded for each token, which takes long; characters of several tokens, too."""
    tokens = BYTES
    draw = random.Random(seed)
    text = "".join(draw.choice(["Paris ", "naïve ", " 日本語", "👩‍👧 ", "x=1;\n", "  two  ", "é"]) for _ in range(40))
    ids = tokens(text)["input_ids"]
    if seed % 2:
        draw.shuffle(ids)  # characters that never end, too
    before, output = ids[:7], ids[7:]
    start = [] if fresh else before[-4:]
    begin = shown = tokens.decode(start)
    expected = []
    for k in range(1, len(output) + 1):
        whole = tokens.decode([*start, *output[:k]]).rstrip("\ufffd")
        longer = len(whole) > max(len(shown), len(begin))
        expected.append(whole[len(shown) :] if longer else "")
        shown = whole if longer else shown
    assert len(output) > 3 * output_text.WINDOW
    assert output_text.pieces_of(tokens, before, output, fresh) == expected


def test_tokens_of_a_prompt_join_to_it_where_a_character_is_several_tokens():
    text = "an é 👩‍👧 日本, e\u0301.\n"
    pieces = tokenise_prompt(BYTES, text, None).pieces
    assert "".join(pieces) == text
    assert len(pieces) == len(text.encode())
    assert pieces[3:5] == ("", "é")
    assert pieces == tuple(output_text.pieces_of(BYTES, [], BYTES(text)["input_ids"], True))


def test_tokens_of_one_character_are_of_one_word_and_none_is_called_a_space():
    found = made(
        prompt="the film was good. she said it was", answer=speaker().convert_tokens_to_ids(["▁a", "▁it", "ly", "s"])
    )
    pieces = ("a", "", "", "👩", " b", "", "é", *found.pieces[7:-3], "", "!", "")
    found = dataclasses.replace(found, pieces=pieces)
    words = found.words()
    assert words.pieces[:3] == ("a", "👩", " bé")
    assert words.output[-2:] == ("!", "")
    assert "".join(words.pieces) == "".join(pieces)
    assert [len(span) for span in found.word_spans()][:3] == [1, 3, 3]
    assert "".join(part.text for part in found.verdict(-1).phrases).startswith("… (")


def test_a_line_break_that_was_written_is_called_one():
    found = made()
    changed = dataclasses.replace(found, pieces=(*found.pieces[:-1], "\n"))
    assert "<h3><q>↵</q> came from</h3>" in page(changed)


@pytest.mark.parametrize("method", ["lrp", "lrp-gamma"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5-lm"])
def test_what_waits_on_disk_comes_back_as_it_went(name, method, monkeypatch, tmp_path):
    monkeypatch.setattr(saved_tensors, "SMALL", 0)
    monkeypatch.setattr(saved_tensors.tempfile, "tempdir", str(tmp_path))
    written = []
    fetch = backends.OnDisk.fetch
    monkeypatch.setattr(backends.OnDisk, "fetch", lambda self, how: written.append(1) or fetch(self, how))
    found = made(name, method=method, keep="disk").relevance
    monkeypatch.setattr(at_once, "ROWS", 0)  # from the disk it comes for one token at a time
    assert torch.equal(found, made(name, method=method).relevance)
    assert len(written) > 40
    assert list(tmp_path.iterdir()) == []


def test_what_the_graph_no_longer_needs_leaves_the_disk(tmp_path):
    kept = backends.OnDisk(torch.arange(3.0), tmp_path / "1.pt")
    assert kept.fetch(kept.prefetch()).tolist() == [0, 1, 2]
    del kept
    assert list(tmp_path.iterdir()) == []


def test_a_given_answer_is_explained_as_if_the_model_had_said_it():
    said = made("gpt2")
    ids = speaker().convert_tokens_to_ids(said.tokens[said.prompt :])
    given = made("gpt2", answer=ids)
    assert torch.equal(given.relevance, said.relevance)
    other = made("gpt2", answer=" London.")
    assert other.text == " London."
    assert other.probabilities[0] < said.probabilities[0]  # greedy took the likeliest


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_sum_of_rows_explains_the_log_probability_of_the_answer(name):
    found = made(name, score="logprob")
    ids = [*speaker()(PROMPT)["input_ids"], *speaker().convert_tokens_to_ids(found.tokens[found.prompt :])]

    def log_probability(out) -> torch.Tensor:
        rows = out.logits[:, found.prompt - 1 :].log_softmax(-1)
        return rows.gather(-1, torch.tensor(ids[found.prompt :]).reshape(1, -1, 1)).sum().reshape(1)

    fields = {"input_ids": torch.tensor([ids[:-1]])}
    one = hw.explain(talker(name), fields, method="lrp", score=log_probability)[0]
    whole = found.whole()
    assert whole.score == approx(one.score, abs=1e-6)
    assert whole.score == approx(sum(torch.tensor(found.probabilities).log().tolist()), abs=1e-5)
    assert whole.relevance[:-1].tolist() == approx(one.relevance.tolist(), abs=10 * tolerance(name))
    assert whole.ledger.error < tolerance(name)


@pytest.mark.parametrize("name", ["llama", "t5-lm"])
def test_alternatives_are_the_likeliest_tokens_in_every_place(name, tmp_path):
    found = made(name)
    assert [len(some) for some in found.alternatives] == [5] * 4
    for said, share, some in zip(found.output, found.probabilities, found.alternatives, strict=True):
        shares = [one.probability for one in some]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) < 1
        assert some[0].probability == approx(share)  # greedily, it said the likeliest
        assert some[0].text == said.strip()
    other = made(name, answer="London", max_new_tokens=1)
    assert other.probabilities[0] <= other.alternatives[0][0].probability
    assert found.words().alternatives[0] == found.alternatives[0]
    found.save(tmp_path / "saved.json")
    assert hw.Generation.load(tmp_path / "saved.json").alternatives == found.alternatives
    without = {name: value for name, value in found.to_dict().items() if name != "alternatives"}
    assert hw.Generation.from_dict(without).alternatives == ()  # files of earlier versions


def test_contrast_is_a_difference_of_logits():
    paris, london = (speaker().convert_tokens_to_ids(f"▁{word}") for word in ("Paris", "London"))
    found = made(answer=" Paris", contrast="London")
    both = [made(answer=[token]) for token in (paris, london)]
    assert found.score == "contrast"
    assert found.scores[0] == approx(both[0].scores[0] - both[1].scores[0])
    assert found.relevance[0, :5].tolist() == approx((both[0].relevance - both[1].relevance)[0, :5].tolist(), abs=1e-12)
    assert "Paris" in found.targets[0]
    assert "London" in found.targets[0]


def test_contrast_is_with_the_runner_up_where_nobody_is_named():
    model, ids = talker("gpt2"), torch.tensor([speaker()(PROMPT)["input_ids"]])
    best, second = model(ids).logits[0, -1].topk(2).values.tolist()
    assert made(score="contrast").scores[0] == approx(best - second)
    rare = made(score="contrast", answer=" London")  # not the likeliest: set against the likeliest
    assert rare.scores[0] < 0


def test_another_answer_is_set_against_this_one_where_they_part():
    found = made(answer=" a good film", contrast="a good London")
    named = made(answer=" a good film", contrast={2: "London"})
    assert found.scores == approx(named.scores)
    with pytest.raises(TargetError, match="does not differ"):
        made(answer=" a good film", contrast="a good")
    with pytest.raises(TargetError, match="there are 3"):
        made(answer=" a good film", contrast={3: "London"})


@pytest.mark.parametrize("name", ["gpt2", "t5-lm"])
def test_what_is_set_aside_is_a_line_of_the_ledger(name):
    shown, aside = made(name), made(name, sinks="aside")
    sink = shown.roles.index("start") if "start" in shown.roles else 0
    for number, (before, after) in enumerate(zip(shown.ledgers, aside.ledgers, strict=True)):
        assert after.constants["attention sink"] == approx(float(shown.relevance[number, sink]), abs=1e-12)
        assert after.inputs == approx(float(aside.relevance[number].sum()), abs=1e-12)
        assert after.error < tolerance(name)
        assert after.score == before.score
    assert bool((aside.relevance[:, sink] == 0).all())
    assert aside.aside.index(True) == sink
    assert aside.set_aside(sinks=True) is aside
    assert all(c.position != sink for c in aside.top(0, None))


def test_special_tokens_set_aside_have_a_line_of_their_own():
    chat = [{"role": "user", "content": PROMPT}]
    shown, aside = (made(prompt=None, chat=chat, special=how, sinks="aside") for how in ("show", "aside"))
    marks = [i for i, token in enumerate(shown.tokens) if token in ("<s>", "</s>")]
    assert marks[0] == 0
    assert len(marks) >= 3
    expected = float(shown.relevance[1, marks[1:]].sum())  # the sink is a special token, and counted once
    assert aside.ledgers[1].constants["special tokens"] == approx(expected, abs=1e-12)
    assert aside.ledgers[1].error < 1e-9


def test_words_and_sentences_are_sums():
    ids = speaker().convert_tokens_to_ids(["▁a", "▁film", "ing", "s", ".", "▁it", "▁was", "ly"])
    found = made(prompt="the film was good. she said", answer=ids)
    words, sentences = found.words(), found.sentences()
    assert words.output == (" a", " filmings", ".", " it", " wasly")
    assert sentences.output == (" a filmings.", " it wasly")
    assert [piece.strip() for piece in sentences.pieces[:2]] == ["the film was good.", "she said"]
    for sums in (words, sentences):
        assert float(sums.relevance.sum()) == approx(float(found.relevance.sum()), abs=1e-12)
        assert all(ledger.error < 1e-9 for ledger in sums.ledgers)
        assert sum(sums.scores) == approx(sum(found.scores))
        assert "".join(sums.pieces) == "".join(found.pieces)
    film = words.relevance[1]
    assert float(film[0]) == approx(float(found.relevance[1:4, 0].sum()), abs=1e-12)
    assert float(words.relevance[1].sum()) == approx(words.ledgers[1].inputs, abs=1e-12)
    with pytest.raises(UsageError, match="not of both"):
        found.grouped([list(range(len(found.tokens)))])


def test_every_token_of_a_chat_knows_whose_it_is():
    chat = [
        {"role": "system", "content": "the good assistant"},
        {"role": "user", "content": "the capital of France"},
        {"role": "assistant", "content": "London"},
        {"role": "user", "content": "it is Paris"},
    ]
    found = made(prompt=None, chat=chat)
    said: dict[str, list[str]] = {}
    for piece, role in zip(found.pieces, found.roles, strict=True):
        said.setdefault(role, []).append(piece.strip())
    assert said["system"] == ["the", "good", "assistant"]
    assert said["user"] == ["the", "capital", "of", "France", "it", "is", "Paris"]
    assert said["assistant"] == ["London"]
    assert {"<s>", "</s>", "user"} <= set(said["template"])
    assert len(said["output"]) == 4
    assert sum(found.by_role(0).values()) == approx(found.ledgers[0].inputs)
    assert found.by_role(0)["output"] == 0 != found.by_role(3)["output"]


def test_the_same_words_in_two_turns_are_told_apart():
    chat = [{"role": "user", "content": "user"}, {"role": "assistant", "content": "user"}]
    found = made(prompt=None, chat=[*chat, {"role": "user", "content": "Paris"}])
    assert found.roles.count("user") == 2
    assert found.roles.count("assistant") == 1


@pytest.mark.parametrize("words", ["user", "assistant", "s", ">", " user ", "the good"])
def test_words_that_the_template_has_too_are_the_messages(words):
    """Searched for in the rendered chat, they would be found before the message."""
    system = "the good assistant"
    chat = [
        {"role": "system", "content": system},
        {"role": "user", "content": words},
        {"role": "assistant", "content": ""},
    ]
    said = tokenise_prompt(speaker(), None, chat)
    header = f"<s>system {system}</s><s>user "
    start = len(header) + len(words) - len(words.lstrip())
    assert said.text.startswith(f"{header}{words}</s>")
    assert said.turns == ((10, 28, "system", 0), (start, start + len(words.strip()), "user", 1))
    theirs = [places for places, role in zip(said.offsets, said.roles, strict=True) if role == "user"]
    assert theirs
    assert all(len(header) < last for _, last in theirs)


def test_a_template_that_looks_at_the_words_is_searched():
    """Here it writes a message differently where it begins with "the"."""
    tokenizer = deepcopy(speaker())
    tokenizer.chat_template = (
        "{% for m in messages %}{{ 'A' if m.content.startswith('the') else 'B' }}{{ m.content }}</s>{% endfor %}"
    )
    said = tokenise_prompt(tokenizer, None, [{"role": "user", "content": "the film"}])
    assert said.text == "Athe film</s>"
    assert said.turns == ((1, 9, "user", 0),)


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_source_and_target_prefix_stand_in_one_ledger(name):
    found = made(name)
    assert found.roles == ("source",) * 5 + ("start",) + ("output",) * 4
    ids = torch.tensor([speaker()(PROMPT)["input_ids"]])
    output = speaker().convert_tokens_to_ids(found.tokens[found.prompt :])
    prefix = torch.tensor([[talker(name).config.decoder_start_token_id, *output[:2]]])
    fields = {"input_ids": ids, "decoder_input_ids": prefix}
    plain = hw.explain(talker(name), fields, method="lrp", target=hw.Token(-1, output[2]))[0]
    assert found.relevance[2, : 5 + 3].tolist() == approx(plain.relevance.tolist(), abs=10 * tolerance(name))


@pytest.mark.parametrize("method", ["a-last", "rollout", "gae", "random", "smoothgrad(lrp)"])
def test_methods_without_a_shared_pass_take_one_a_token(method):
    found = made("gpt2", method=method)
    assert found.method == method
    for number, row in enumerate(found.relevance):
        assert bool((row[found.prompt + number :] == 0).all())
        assert bool(row.any())


@pytest.mark.parametrize("change", [lambda g: g, lambda g: g.words(), lambda g: g.set_aside(sinks=True)])
def test_what_was_saved_is_what_is_loaded(tmp_path, change):
    found = change(made(score="contrast"))
    found.save(tmp_path / "generation.json")
    again = hw.Generation.load(tmp_path / "generation.json")
    assert torch.equal(again.relevance, found.relevance.double())
    for field in dataclasses.fields(found):
        if field.name != "relevance":
            assert getattr(again, field.name) == getattr(found, field.name), field.name
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(DataError):
        hw.Generation.load(tmp_path / "other.json")


def test_what_contributed_most_comes_first():
    found = made()
    top = found.top(0, None)
    assert [abs(c.relevance) for c in top] == sorted((abs(c.relevance) for c in top), reverse=True)
    assert len(found.top(0, 2)) == 2
    assert {c.position for c in found.top(3, None)} == set(range(found.prompt + 3))
    assert (
        found.top(found.output[2].strip())[0].relevance == found.top(found.output.index(found.output[2]))[0].relevance
    )


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (UsageError, {"prompt": None}),
        (UsageError, {"chat": [{"role": "user", "content": "a"}]}),
        (EmptyInput, {"prompt": " "}),
        (EmptyInput, {"prompt": None, "chat": []}),
        (InputError, {"prompt": None, "chat": [{"role": "user"}]}),
        (InputError, {"prompt": None, "chat": [1]}),
        (InputError, {"prompt": ["a", 5]}),
        (UsageError, {"max_new_tokens": "3"}),
        (UsageError, {"max_new_tokens": 1.5}),
        (UsageError, {"tokens_at_once": 1.5}),
        (UsageError, {"contrast": 5}),
        (UsageError, {"contrast": {"0": "Paris"}}),
        (InputError, {"contrast": {0: 120}}),
        (InputError, {"contrast": {0: -1}}),
        (UsageError, {"answer": "Paris", "methd": "gi"}),
        (InputError, {"prompt": None, "chat": 5}),
        (InputError, {"prompt": None, "chat": {"role": "user", "content": "a"}}),
        (UnknownName, {"score": "loglik"}),
        (UnknownName, {"sinks": "away"}),
        (UnknownName, {"method": "lpr"}),
        (UsageError, {"score": "logit", "contrast": "London"}),
        (UsageError, {"max_new_tokens": 0}),
        (UsageError, {"tokens_at_once": 0}),
        (UnknownName, {"keep": "cloud"}),
        (InputError, {"answer": ""}),
        (InputError, {"answer": " a" * 80}),
        (InputError, {"answer": [5, 120]}),
        (InputError, {"answer": [-1]}),
        (InputError, {"answer": ["Paris"]}),
        (InputError, {"answer": torch.tensor([[5, 6]])}),
    ],
)
def test_what_cannot_be_done_is_said(error, options):
    with pytest.raises(error):
        made(**options)


def test_a_prompt_without_room_is_refused_before_anything_is_generated(monkeypatch):
    called = []
    monkeypatch.setattr(talker("gpt2"), "generate", lambda **_: called.append(1), raising=False)
    with pytest.raises(InputError, match="64 tokens, the model takes at most 64"):
        made(prompt=" ".join(["the"] * 64))
    assert not called


def test_sampling_is_by_the_seed_and_leaves_torchs_own_numbers_alone():
    made()  # the model is drawn when it is first asked for
    before = torch.get_rng_state()
    said = [made(do_sample=True, temperature=3.0, max_new_tokens=8, seed=seed).output for seed in (1, 1, 2)]
    assert said[0] == said[1] != said[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_without_sampling_torchs_generator_is_not_touched(monkeypatch):
    """Another thread may be drawing."""
    made()
    monkeypatch.setattr(output_text, "seed_torch", lambda *_: pytest.fail("seeded"))
    made()
    settings = transformers.GenerationConfig(do_sample=True)
    for options in ({"do_sample": True}, {"generation_config": settings}):
        with pytest.raises(pytest.fail.Exception, match="seeded"):
            made(**options)


def test_a_generation_config_of_the_callers_is_obeyed():
    """What is set by name goes before it, so that greedy decoding is not set where one is given."""
    asked = {"num_beams": 3, "max_new_tokens": 6, "length_penalty": 2.0}
    settings = transformers.GenerationConfig(num_beams=3, length_penalty=2.0)
    by_name, greedy = made(**asked), made(max_new_tokens=6)
    assert made(generation_config=settings, max_new_tokens=6).output == by_name.output != greedy.output


@pytest.mark.parametrize("options", [{"stop_strings": ["film"]}, {}])
def test_generate_gets_the_tokenizer_where_it_stops_at_a_text(options, monkeypatch):
    """A model's own `generate` may take no tokenizer."""
    seen = []
    model = talker("gpt2")

    def generate(input_ids, **given):
        seen.append(given.get("tokenizer"))
        return torch.cat([input_ids, input_ids[:, -1:]], 1)

    monkeypatch.setattr(model, "generate", generate, raising=False)
    made(**options)
    assert seen == [speaker() if options else None]


def test_a_classifier_does_not_generate():
    from tiny import tiny

    with pytest.raises(ModelError, match="does not generate"):
        hw.explain_generation(tiny("bert"), PROMPT, tokenizer=speaker())


@pytest.mark.slow
def test_the_capital_of_france_is_explained_by_france_and_capital():
    from real_models import smollm2

    model, tokenizer = smollm2()
    found = hw.explain_generation(
        model,
        "The capital of France is",
        tokenizer=tokenizer,
        max_new_tokens=3,
        method="lrp-gamma(0.02)",
        score="contrast",
    )
    assert found.text.startswith(" Paris")
    assert {c.text for c in found.top("Paris", 2)} == {" France", " capital"}
    assert all(ledger.closed for ledger in found.ledgers)


def test_by_default_queries_take_part_and_the_sink_is_a_line():
    """The first token's relevance is not lost."""
    default = hw.explain_generation(talker("gpt2"), PROMPT, tokenizer=speaker(), max_new_tokens=2)
    shown = made(max_new_tokens=2, method=LANGUAGE_METHOD)
    assert (default.method, default.score) == ("lrp-language", "advantage")
    assert float(default.relevance[:, 0].abs().max()) == 0
    for row, after in zip(shown.relevance, default.ledgers, strict=True):
        assert after.constants["attention sink"] == approx(float(row[0]), abs=1e-12)
        assert after.error < tolerance("gpt2")


@pytest.mark.parametrize("asked", [{"prompt": "a \ud800"}, {"prompt": "a", "answer": "\udfff b"}])
def test_half_of_a_surrogate_pair_is_no_text(asked) -> None:
    with pytest.raises(InputError, match="half of a surrogate pair"):
        hw.explain_generation(talker("llama"), tokenizer=speaker(), **asked)
