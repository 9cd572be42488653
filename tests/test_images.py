"""Images: relevance of pixels and patches that adds up, at the place in the picture where it belongs."""

from __future__ import annotations

import io
import sys
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import transformers as tf
from PIL import Image
from tiny import randomised
from torch import Tensor, nn

import headwater as hw
from headwater.errors import InputError, MissingExtra, NotApplicable, UsageError
from headwater.inputs.images import Seen, find_box, prepare_images
from headwater.inputs.patches import patches_of
from headwater.methods import available
from headwater.models.bundled import DIGITS, bundled_path
from headwater.results.picture import Grid, ImageFrame
from headwater.testing import check_method
from headwater.viz import comparison as compared
from headwater.viz import html, plain, terminal
from headwater.viz import images as viz

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 8,
    "num_labels": 3,
}
DINO = {k: v for k, v in SMALL.items() if k != "intermediate_size"} | {"mlp_ratio": 2}
WINDOWS = {"patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2, "image_size": 16}
STAGES = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_labels": 3}
HEADS = {"num_attention_heads": [1, 2, 2, 4]}

MODELS = {
    "vit": lambda: tf.ViTForImageClassification(tf.ViTConfig(**SMALL)),
    "deit": lambda: tf.DeiTForImageClassification(tf.DeiTConfig(**SMALL)),
    "beit": lambda: tf.BeitForImageClassification(tf.BeitConfig(**SMALL, use_relative_position_bias=True)),
    "dinov2": lambda: tf.Dinov2ForImageClassification(tf.Dinov2Config(**DINO)),
    "dinov2-gated": lambda: tf.Dinov2ForImageClassification(tf.Dinov2Config(**DINO, use_swiglu_ffn=True)),
    "registers": lambda: tf.Dinov2WithRegistersForImageClassification(tf.Dinov2WithRegistersConfig(**DINO)),
    "swin": lambda: tf.SwinForImageClassification(tf.SwinConfig(**WINDOWS, num_labels=3)),
    "swinv2": lambda: tf.Swinv2ForImageClassification(tf.Swinv2Config(**WINDOWS, num_labels=3)),
    "convnext": lambda: tf.ConvNextForImageClassification(tf.ConvNextConfig(image_size=32, **STAGES)),
    "pvt": lambda: tf.PvtForImageClassification(tf.PvtConfig(image_size=32, **STAGES, **HEADS)),
}
LARGER = ("convnext", "pvt")


@cache
def tiny(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(MODELS[name]().double())


@cache
def processor(name: str = "vit") -> Any:
    side = 32 if name in LARGER else 16
    return tf.ViTImageProcessorPil(size={"height": side, "width": side})


def photo(width: int = 30, height: int = 40, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@cache
def explained(method: str = "lrp") -> Any:
    return hw.explain(tiny("vit"), photo(), processor=processor(), method=method)


# relevance


@pytest.mark.parametrize("name", MODELS)
def test_inputs_biases_and_constants_are_the_score(name):
    for method in ("lrp", "lrp-gamma"):
        e = hw.explain(tiny(name), photo(), processor=processor(name), method=method)
        assert e.ledger.inputs + e.ledger.biases + e.ledger.constants == pytest.approx(e.score, abs=1e-9)
        assert e.ledger.inputs == pytest.approx(float(e.pixels.sum()), abs=1e-9)
        assert e.ledger.closed


@pytest.mark.parametrize("method", ["gi", "lrp(ah+ln)", "attnlrp"])
def test_without_a_rule_the_ledger_stays_open(method):
    assert abs(explained(method).ledger.unaccounted) > 1e-3


def test_class_token_and_positions_are_lines_of_the_ledger():
    lines = explained().ledger.biases
    assert abs(lines["vit.embeddings.cls_token"]) > 1e-6
    assert abs(lines["vit.embeddings.position_embeddings"]) > 1e-6


def test_the_prediction_is_the_models_own():
    pixels = processor()(photo(), return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        logits = tiny("vit")(pixel_values=pixels).logits[0]
    assert explained().score == float(logits.max())
    assert explained().prediction == f"LABEL_{int(logits.argmax())}"


def test_a_patch_is_the_sum_of_its_pixels_and_channels():
    e = explained()
    assert e.image.pixels.shape == (3, 16, 16)
    assert e.pixels.shape == (16, 16)
    assert e.patches.shape == (2, 2)
    for row in range(2):
        for column in range(2):
            own = e.image.pixels[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            assert float(e.patches[row, column]) == pytest.approx(float(own.sum()), abs=1e-12)


def test_other_patches_can_be_asked_for():
    fine = hw.explain(tiny("vit"), photo(), processor=processor(), patch=4)
    assert fine.patches.shape == (4, 4)
    coarse = fine.patches.reshape(2, 2, 2, 2).sum((1, 3))
    assert torch.allclose(coarse, explained().patches, atol=1e-12)
    with pytest.raises(UsageError, match="from 1 to 16"):
        hw.explain(tiny("vit"), photo(), processor=processor(), patch=17)


def test_pixels_that_fill_no_patch_go_with_the_last_one():
    grid = Grid(10, 10, (4, 4))
    assert len(grid) == 4
    assert [grid.row_of(y) for y in range(10)] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert grid.edges(1, 1) == (4, 4, 10, 10)
    patches = patches_of(tiny("vit"), 3, 10, 10, 4)
    assert float(patches.sums(torch.ones(3, 10, 10)).sum()) == 300


@pytest.mark.slow
@pytest.mark.parametrize("name", [m.name for m in available()])
def test_every_method_conforms_on_images(name):
    pictures = [photo(), photo(20, 20, seed=1)]
    made = check_method(name, tiny("vit"), pictures, processor=processor(), tolerance=1e-4)
    assert made is not None
    assert all(e.patches.shape == (2, 2) for e in made)


def test_images_of_several_shapes_are_explained_each_in_its_own():
    def kept(images, return_tensors):
        return {"pixel_values": torch.as_tensor(np.array(images)).permute(2, 0, 1)[None] / 255 - 0.5}

    pictures = [photo(32, 32), photo(64, 32, seed=1), photo(32, 32, seed=2)]
    together = hw.explain(tiny("convnext"), pictures, processor=kept)
    assert [tuple(e.patches.shape) for e in together] == [(8, 8), (8, 16), (8, 8)]
    for e, picture in zip(together, pictures, strict=True):
        alone = hw.explain(tiny("convnext"), picture, processor=kept)
        assert torch.allclose(e.relevance, alone.relevance, atol=1e-12)


def test_an_audit_takes_an_image():
    audit = hw.audit(tiny("vit"), photo(), processor=processor(), method="lrp")
    assert audit.explanation.ledger.closed


def test_targets_are_those_of_a_text():
    ask = {"processor": processor()}
    one, two = (hw.explain(tiny("vit"), photo(), target=t, **ask) for t in ("LABEL_0", 1))
    both = hw.explain(tiny("vit"), photo(), target="LABEL_0 - LABEL_1", **ask)
    assert torch.allclose(both.relevance, one.relevance - two.relevance, atol=1e-12)
    assert both.score == pytest.approx(one.score - two.score)


# attention


def test_rollout_belongs_to_the_patches_it_stands_at():
    """Against the model's own attention maps, rolled out by hand."""
    model = tiny("vit")
    pixels = processor()(photo(), return_tensors="pt")["pixel_values"].double()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(pixel_values=pixels, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    total = torch.eye(5, dtype=torch.float64)
    for layer in maps:
        total = 0.5 * (layer[0].mean(0) + torch.eye(5)) @ total
    wanted = total.sum(0)
    found = explained("rollout")
    assert torch.allclose(found.patches.flatten().double(), wanted[1:], atol=1e-6)
    assert found.ledger.constants["position 0, no patch"] == pytest.approx(float(wanted[0]), abs=1e-6)


def test_attention_has_patches_and_no_pixels():
    e = explained("gae")
    assert e.patches.shape == (2, 2)
    with pytest.raises(InputError, match="tells the patches"):
        _ = e.pixels


@pytest.mark.parametrize(("name", "before"), [("vit", 1), ("deit", 2), ("beit", 1), ("registers", 5), ("swin", 0)])
def test_positions_that_no_pixel_reaches_are_no_patches(name, before):
    assert patches_of(tiny(name), 3, 16, 16, None).before == before


@pytest.mark.parametrize(("name", "pooled"), [("vit", False), ("deit", False), ("beit", True), ("dinov2", True)])
def test_the_gradient_tells_whether_the_answer_is_read_off_all_positions(name, pooled):
    from headwater.engine.forward import Run
    from headwater.inputs.images import batch_images
    from headwater.inputs.targets import Reader
    from headwater.methods.attention import read_attention, reads_all

    model = tiny(name)
    batch = batch_images(model, prepare_images([photo()], processor(), 3)).to(torch.device("cpu"), torch.float64)
    run = Run(model, batch, Reader(model, None, None))
    _, maps = read_attention(run, "gae", gradient=True)
    assert reads_all(run, maps, gradient=True) is pooled


class Reversed(nn.Module):
    """Puts its class token behind the patches, where nobody looks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 8, 8, 8)
        self.last = nn.Parameter(torch.ones(1, 1, 8))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.cut(pixel_values).flatten(2).transpose(1, 2)
        return torch.cat([patches, self.last.expand(len(patches), 1, 8)], 1)


def test_a_class_token_elsewhere_is_noticed():
    model = nn.Sequential()
    model.add_module("embeddings", Reversed())
    model.forward = lambda pixel_values: model.embeddings(pixel_values)
    assert patches_of(model, 3, 16, 16, None).before is None


@pytest.mark.parametrize("name", ["swin", "convnext", "pvt"])
def test_attention_that_is_not_of_patches_is_refused(name):
    with pytest.raises(NotApplicable):
        hw.explain(tiny(name), photo(), processor=processor(name), method="rollout")


def test_attention_is_summed_over_larger_patches_and_not_cut_into_smaller():
    whole = hw.explain(tiny("vit"), photo(), processor=processor(), method="rollout", patch=16)
    assert float(whole.patches[0, 0]) == pytest.approx(float(explained("rollout").patches.sum()), rel=1e-6)
    with pytest.raises(NotApplicable, match="8 by 8"):
        hw.explain(tiny("vit"), photo(), processor=processor(), method="rollout", patch=4)


# what is given


def test_an_image_comes_as_path_array_or_pillow_image(tmp_path):
    photo().save(tmp_path / "a.png")
    array = np.asarray(photo())
    given = [photo(), tmp_path / "a.png", str(tmp_path / "a.png"), array, array.transpose(2, 0, 1), array / 255]
    made = hw.explain(tiny("vit"), given, processor=processor())
    assert all(torch.allclose(e.relevance, made[0].relevance, atol=1e-12) for e in made)
    assert made[1].image.frame.source == str(tmp_path / "a.png")
    assert isinstance(hw.explain(tiny("vit"), array[None], processor=processor()), list)


def test_grey_and_colour_go_to_what_the_model_takes():
    grey = tf.ViTForImageClassification(tf.ViTConfig(**SMALL, num_channels=1))
    grey = randomised(grey.double())
    one = tf.ViTImageProcessorPil(size={"height": 16, "width": 16}, image_mean=[0.1], image_std=[0.3])
    assert hw.explain(grey, photo(), processor=one).image.pixels.shape == (1, 16, 16)
    assert hw.explain(tiny("vit"), photo().convert("L"), processor=processor()).image.pixels.shape == (3, 16, 16)


class OwnModel(nn.Module):
    """Called as models of torchvision and timm are: with pixels, for which it has a name of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, scale: float = 1.0, **more: Any) -> Tensor:
        return self.model(pixel_values=x * scale).logits


def test_a_model_with_another_name_for_pixels_is_explained():
    """torchvision and timm call them `x`, nn.Sequential `input`."""
    own = OwnModel(tiny("vit")).eval()
    for method in ("lrp", "rollout"):
        plain = hw.explain(tiny("vit"), photo(), processor=processor(), method=method)
        found = hw.explain(own, photo(), processor=processor(), method=method)
        assert torch.allclose(found.relevance, plain.relevance, atol=1e-12)
        assert found.score == pytest.approx(plain.score)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    e = hw.explain(randomised(nn.Sequential(*layers).double()), photo(), processor=processor())
    assert e.ledger.closed
    assert e.patches.shape == (16, 16)


@pytest.mark.slow
def test_a_model_with_another_name_for_pixels_is_evaluated():
    own, pairs = OwnModel(tiny("vit")).eval(), [(photo(), 0)]
    found, plain = (hw.evaluate(one, pairs, methods=["lrp"], processor=processor()) for one in (own, tiny("vit")))
    assert found["lrp"].auac == plain["lrp"].auac


def test_a_camera_held_sideways_is_turned_back(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    photo().save(tmp_path / "a.png", exif=exif)
    turned = hw.explain(tiny("vit"), tmp_path / "a.png", processor=processor())
    assert turned.image.frame.size == (40, 30)
    upright = hw.explain(tiny("vit"), photo().transpose(Image.Transpose.ROTATE_270), processor=processor())
    assert torch.equal(turned.relevance, upright.relevance)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("nowhere.png", "there is no file"),
        (__file__, "cannot be read as an image"),
        (np.zeros((5, 5, 2), np.uint8), "has the shape"),
        (np.full((4, 4), 7.0), "between 0 and 1"),
        (Image.new("I;16", (4, 4)), "more than 8 bits"),
        (np.zeros((0, 0, 3)), "has no pixels"),
        (7, "must be a Pillow image"),
    ],
)
def test_what_is_no_image_is_refused(image, said):
    with pytest.raises(InputError, match=said):
        hw.explain(tiny("vit"), image, processor=processor())


def test_an_image_needs_a_processor_and_nothing_of_a_text():
    with pytest.raises(InputError, match="needs a processor"):
        hw.explain(tiny("vit"), photo())
    with pytest.raises(UsageError, match="at its pixels"):
        hw.explain(tiny("vit"), photo(), processor=processor(), inputs="pixel_values")
    with pytest.raises(UsageError, match="a number of pixels"):
        hw.explain(tiny("vit"), photo(), processor=processor(), patch=2.5)
    with pytest.raises(UsageError, match="about images"):
        hw.explain(tiny("vit"), {"pixel_values": torch.zeros(1, 3, 16, 16)}, patch=4)


@pytest.mark.parametrize("call", ["explain", "png"])
def test_a_missing_extra_is_named(call, monkeypatch):
    e, image = explained(), photo()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtra, match=r"headwater\[images\]"):
        viz.png([e], image) if call == "png" else hw.explain(tiny("vit"), "a.png", processor=processor())


# where it lies in the original


def cropped(size: int, crop: int) -> Any:
    return tf.BitImageProcessorPil(size={"shortest_edge": size}, crop_size={"height": crop, "width": crop})


def box(process: Any, size: tuple[int, int]) -> Any:
    return find_box(
        lambda image: torch.as_tensor(process(images=image, return_tensors="pt")["pixel_values"])[0], size, 3
    )


def test_a_resized_image_is_seen_whole():
    assert box(processor(), (123, 57)) == (0, 0, 123, 57)
    assert box(processor(), (1, 1)) == (0, 0, 1, 1)


def test_a_cut_image_is_seen_in_part():
    left, top, right, bottom = box(cropped(128, 112), (400, 300))  # to 170 x 128, of which 112 x 112 in the middle
    assert (left, right) == pytest.approx((29 * 400 / 170, 141 * 400 / 170), abs=2)
    assert (top, bottom) == pytest.approx((8 * 300 / 128, 120 * 300 / 128), abs=2)


def test_a_padded_image_is_seen_with_more_around_it():
    def padded(images, return_tensors):
        pixels = torch.as_tensor(np.array(images.resize((16, 8)))).permute(2, 0, 1).float()
        return {"pixel_values": nn.functional.pad(pixels, (0, 0, 4, 4))[None]}

    assert box(padded, (32, 16)) == pytest.approx((0, -8, 32, 24), abs=0.5)


def test_a_mirrored_image_has_no_place_in_the_original():
    def mirrored(images, return_tensors):
        pixels = torch.as_tensor(np.array(images.resize((16, 16)))).permute(2, 0, 1).float()
        return {"pixel_values": pixels.flip(-1)[None]}

    assert box(mirrored, (32, 16)) is None


# pictures


def example(values: list[list[float]], frame: ImageFrame | None = None) -> Any:
    """An explanation of a white image whose patches have these relevances."""
    from dataclasses import replace

    found = torch.tensor(values)
    grid = Grid(4, 4, (4 // found.shape[0], 4 // found.shape[1]))
    pixels = found.repeat_interleave(grid.cell[0], 0).repeat_interleave(grid.cell[1], 1)[None] / 4
    image = replace(explained().image, grid=grid, pixels=pixels, frame=frame or ImageFrame((60, 60), (0, 0, 60, 60)))
    return replace(explained(), relevance=found.flatten(), tokens=grid.names, image=image)


WHITE = Image.new("RGB", (60, 60), "white")


def quarters(image: Image.Image) -> list[np.ndarray]:
    whole = np.asarray(image).astype(float)
    half = len(whole) // 2
    parts = [whole[:half, :half], whole[:half, half:], whole[half:, :half], whole[half:, half:]]
    return [part[4:-4, 4:-4] for part in parts]


@pytest.mark.parametrize("level", ["patches", "pixels"])
def test_red_adds_blue_takes_away_and_is_hatched(level):
    adds, takes, none, half = quarters(viz.overlay(example([[2.0, -2.0], [0.0, 1.0]]), WHITE, level))
    assert adds[..., 0].mean() > adds[..., 2].mean() + 50
    assert takes[..., 2].mean() > takes[..., 0].mean() + 50
    assert none.min() == 255
    assert adds.mean() < half.mean() < none.mean()
    grey = [part.mean(-1) for part in (adds, takes, half)]
    assert grey[1].std() > 10  # lines, which a print in black and white shows
    assert grey[0].std() == grey[2].std() == 0


def test_nothing_is_drawn_where_the_model_does_not_look():
    seen = ImageFrame((60, 60), (15, 15, 45, 45))
    drawn = np.asarray(viz.overlay(example([[1.0, 1.0], [1.0, 1.0]], seen), WHITE)).astype(float)
    unit = len(drawn) / 60
    edge = round(14 * unit)
    assert drawn[:edge].min() == drawn[:, :edge].min() == drawn[-edge:].min() == 255
    assert drawn[round(30 * unit), round(20 * unit), 2] < 200


def test_the_sheet_is_a_png_with_a_panel_for_the_picture_and_each_level():
    sheet = Image.open(io.BytesIO(viz.png([explained()], photo())))
    rollout = Image.open(io.BytesIO(viz.png([explained("rollout")], photo())))
    assert sheet.format == "PNG"
    assert sheet.width > rollout.width  # which has no pixels
    both = viz.stack_png([viz.png([explained()], photo())] * 2)
    assert Image.open(io.BytesIO(both)).height == 2 * sheet.height


def test_another_picture_is_refused():
    with pytest.raises(InputError, match="30 x 40"):
        viz.png([explained()], photo(40, 30))
    with pytest.raises(InputError, match="cannot be found in the picture"):
        viz.png([example([[1.0]], ImageFrame((60, 60), None))], WHITE)


def test_the_svg_has_a_rectangle_for_each_patch_and_hatches_what_takes_away():
    drawn = viz.picture([example([[2.0, -2.0], [0.01, -0.01]])], WHITE, levels=["patches"])
    root = ElementTree.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    patches = [r for r in root.iter(f"{name}rect") if r.find(f"{name}title") is not None]
    assert [r.find(f"{name}title").text for r in patches] == [
        "[0, 0]: +2.0000",
        "[0, 1]: -2.0000",
        "[1, 0]: +0.0100",
        "[1, 1]: -0.0100",
    ]
    hatched = [r for r in root.iter(f"{name}rect") if r.get("fill") == "url(#hatch)"]
    assert len(hatched) == 2  # the patch that is strong enough, and the legend's
    links = [image.get("href") for image in root.iter(f"{name}image")]
    assert links
    assert all(link.startswith("data:image/png;base64,") for link in links)


def test_svg_sheets_can_be_stacked():
    one = viz.picture([explained()], photo())
    both = ElementTree.fromstring(viz.stack_svg([one, one]))
    alone = ElementTree.fromstring(one)
    assert int(both.get("height")) == 2 * int(alone.get("height"))
    assert viz.stack_svg([one]) == one


def test_the_page_holds_its_pictures_and_runs_nothing():
    page = html.page([explained()], pictures=[viz.picture([explained()], photo())])
    assert "img-src data:" in page
    assert "<script" not in page
    assert "every patch with its number" in page
    assert "img-src" not in html.page([explained()])


def test_a_comparison_has_a_panel_a_method():
    found = hw.compare(tiny("vit"), photo(), methods=["gi", "lrp", "rollout"], processor=processor())
    sheet = viz.picture(found.explanations, photo(), levels=["patches"])
    page = compared.page(found, picture=sheet)
    assert all(f">{name}</text>" in page for name in ("gi", "lrp", "rollout"))
    both = viz.picture(found.explanations, photo())
    assert all(f">{name}</text>" in both for name in ("gi, patches", "gi, pixels", "rollout, patches"))
    assert "patch  " in compared.plain(found)
    from rich.console import Console

    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="truecolor")
    console.print(compared.render(found))
    assert "patches" in console.file.getvalue()


def test_text_shows_the_patches_as_they_lie():
    e = example([[2.0, -2.0], [0.0, 1.0]])
    lines = plain.plain(e).splitlines()
    start = lines.index("patches, 2 rows of 2:")
    assert [line.split() for line in lines[start + 1 : start + 3]] == [["+2.00", "-2.00"], ["0.00", "+1.00"]]
    from rich.console import Console

    console = Console(file=io.StringIO(), width=60)
    console.print(terminal.render(e))
    shown = [line.strip() for line in console.file.getvalue().splitlines()]
    assert "+  -" in shown
    many = hw.explain(tiny("pvt"), photo(), processor=processor("pvt"), patch=1)
    assert "32 rows of 32, the largest 20" in plain.plain(many)


def test_json_has_both_levels():
    found = explained().to_dict()["image"]
    assert np.asarray(found["patches"]).shape == (2, 2)
    assert np.asarray(found["pixels"]).shape == (16, 16)
    assert found["size"] == [30, 40]
    assert explained("rollout").to_dict()["image"]["pixels"] is None


# measures


class Sums(nn.Module):
    """Logits that are linear in the pixels: class 1 has 8, 4, 2 and 1 times the mean of the four patches."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, 1, 2, 2, bias=False)
        self.cut.weight.data.fill_(0.25)
        self.weights = nn.Parameter(torch.tensor([8.0, 4.0, 2.0, 1.0]))

    def forward(self, pixel_values: Tensor) -> Tensor:
        score = (self.cut(pixel_values).flatten(1) * self.weights).sum(1)
        return torch.stack([torch.zeros_like(score), score], 1)


def ready(pixels: list[list[float]]) -> Seen:
    return Seen(torch.tensor([pixels]), ImageFrame((4, 4), (0, 0, 4, 4)))


def test_curves_are_those_that_can_be_worked_out_by_hand():
    """All pixels 1: with the k best patches the score is 0, 8, 12, 14, 15; without the k best the rest is missing."""
    found = hw.evaluate(
        Sums().eval(),
        [(ready([[1.0] * 4] * 4), 1)],
        methods=["gi"],
        protocol="ali2022(fractions=0+0.25+0.5+0.75+1)",
        runtime=False,
    )
    scores = np.array([0.0, 8.0, 12.0, 14.0, 15.0])
    assert found["gi"].activation.mean == pytest.approx(1 / (1 + np.exp(-scores)))
    assert found["gi"].pruning.mean == pytest.approx([0.0, 1.0, 9.0, 49.0, 225.0])  # least relevant first
    assert found.protocol.name.startswith("ali2022(")
    assert "replacement=mean" in found.protocol.name
    assert found.provenance["replacement"] == "mean colour"
    assert found.provenance["items"] == "patches of 2 by 2 pixels"


def test_a_patch_that_is_taken_out_is_zero_for_the_model():
    from headwater.evaluation.images import ImageSource

    seen = prepare_images([photo()], processor(), 3)
    source = ImageSource(tiny("vit"), seen)
    part = source.part([0])
    kept = np.array([[True, False, True, True]])
    pixels = seen[0].pixels.double().clone()
    pixels[:, :8, 8:] = 0
    with torch.no_grad():
        wanted = tiny("vit")(pixel_values=pixels[None]).logits
    assert part.logits(part.perturb(0, kept)) == pytest.approx(wanted.numpy())


def test_evaluate_takes_images_and_tables_of_paths(tmp_path):
    for i in range(3):
        photo(seed=i).save(tmp_path / f"{i}.png")
    rows = [f"{i}.png,{'LABEL_1' if i else 0}" for i in range(3)]
    (tmp_path / "table.csv").write_text("\n".join(["image,label", *rows]))
    options = {"methods": ["random", "lrp", "rollout"], "processor": processor()}
    table = hw.evaluate(tiny("vit"), tmp_path / "table.csv", text_column="image", **options)
    pairs = hw.evaluate(tiny("vit"), [(photo(seed=i), min(i, 1)) for i in range(3)], measures="all", **options)
    assert table["lrp"].auac == pairs["lrp"].auac
    assert pairs["rollout"].runtime.ratio > 0
    assert pairs["lrp"].randomisation is not None


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ([(7, 0)], {}, "row 0 of the list"),
        ([(photo(), 9)], {}, "has no label 9"),
        ([photo()], {}, "without a label"),
        ([(photo(), 0)], {"protocol": "ali2022(removal=masked)"}, "about the nodes"),
        ([(photo(), 0)], {"protocol": "ali2022(replacement=mask)"}, "about tokens"),
    ],
)
def test_what_cannot_be_evaluated_is_said(data, options, said):
    with pytest.raises(hw.errors.HeadwaterError, match=said):
        hw.evaluate(tiny("vit"), data, methods=["gi"], processor=processor(), **options)


def test_a_colour_is_no_replacement_for_a_token():
    from tiny import tiny as texts
    from tiny import tokenizer

    with pytest.raises(UsageError, match="is a colour"):
        hw.evaluate(
            texts("bert"), [("good", 0)], methods=["gi"], tokenizer=tokenizer(), protocol="ali2022(replacement=mean)"
        )


# loading


def test_an_image_model_is_loaded_with_its_processor(tmp_path):
    from headwater.errors import LoadError
    from headwater.models.loading import load_image_model

    tiny("vit").save_pretrained(tmp_path)
    with pytest.raises(LoadError, match=r"preprocessor_config\.json"):
        load_image_model(tmp_path)
    processor().save_pretrained(tmp_path)
    model, found = load_image_model(tmp_path, dtype="float64")
    e = hw.explain(model, photo(), processor=found)
    assert torch.equal(e.relevance, explained().relevance)


def test_a_name_on_the_hub_asks_the_hub(monkeypatch):
    """Both model and processor are asked for by the name, and the processor is the one that Pillow suffices for."""
    from headwater.models import loading

    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr("headwater.models.hub.is_reachable", lambda: True)
    monkeypatch.setattr(loading, "load", lambda name, **options: (asked.append((name, options["task"])), None))
    monkeypatch.setattr(
        tf.AutoImageProcessor,
        "from_pretrained",
        classmethod(lambda cls, name, **options: asked.append((name, options["backend"]))),
    )
    loading.load_image_model("google/vit-base-patch16-224")
    assert asked == [("google/vit-base-patch16-224", "image-classification"), ("google/vit-base-patch16-224", "pil")]


def test_this_file_lies_beside_the_checkpoint_it_speaks_of():
    """The small ViT for digits: standard classes, small, and as accurate as its card says."""
    import json

    place = bundled_path(DIGITS)
    found = json.loads((place / "training.json").read_text(encoding="utf-8"))
    assert found["test"]["accuracy"] > 0.98
    assert (place / "model.safetensors").stat().st_size < 1.5e6
    assert f"{found['test']['accuracy']:.2%}" in (place / "README.md").read_text(encoding="utf-8")


# the command line


def call(*words: object) -> Any:
    from typer.testing import CliRunner

    from headwater.cli import app

    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def digit(tmp_path: Path) -> Path:
    """A bar that looks like a one."""
    image = np.zeros((28, 28), np.uint8)
    image[4:24, 13:16] = 255
    Image.fromarray(image).save(tmp_path / "digit.png")
    return tmp_path / "digit.png"


def width_of(file: Path) -> int:
    with Image.open(file) as image:
        assert image.format == "PNG"
        return image.width


def test_explain_draws_an_image(digit, tmp_path):
    files = [word for kind in ("png", "svg", "html") for word in (f"--{kind}", tmp_path / f"out.{kind}")]
    done = call("explain", "--image", digit, *files)
    assert done.exit_code == 0, done.output
    assert "patches, 7 rows of 7:" in done.stdout
    assert "target: 1" in done.stdout
    assert width_of(tmp_path / "out.png") > 1000
    ElementTree.parse(tmp_path / "out.svg")
    assert "img-src data:" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_several_images_give_several_explanations(digit, tmp_path):
    import json

    done = call(
        "explain", "--image", digit, "--image", digit, "--json", "--target", "1 - 7", "--png", tmp_path / "o.png"
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 2
    assert lines[0]["target"] == "1 - 7"
    assert lines[0]["image"]["source"] == str(digit)
    assert lines[0]["provenance"]["model"] == "headwater/mnist"


def test_compare_draws_methods_side_by_side(digit, tmp_path):
    out = tmp_path / "out.png"
    words = ("compare", "--image", digit, "--methods", "gi,lrp,rollout")
    patches = call(*words, "--png", out, "--html", tmp_path / "out.html")
    assert patches.exit_code == 0, patches.output
    wide = width_of(out)
    call("compare", "--image", digit, "--methods", "lrp", "--pixels", "--png", out, "--svg", tmp_path / "out.svg")
    assert width_of(out) < wide
    assert "rollout" in (tmp_path / "out.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explain", "--image", "nowhere.png"), "there is no file nowhere.png"),
        (("explain", "a text", "--image", "{digit}"), "in place of a text"),
        (("explain", "a text", "--png", "out.png"), "are for an --image"),
        (("explain", "--image", "{digit}", "--words"), "are about texts"),
        (("compare", "a text", "--pixels"), "are for an --image"),
        (("explain", "--image", "{digit}", "--target", "ten"), "no class called 'ten'"),
        (("evaluate", "--data", "a.csv", "--patch", "4"), "is for --images"),
    ],
)
def test_refusals_are_one_line(words, said, digit):
    done = call(*(word.format(digit=digit) for word in words))
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_evaluate_reads_a_table_of_paths(digit):
    import json

    table = digit.parent / "table.csv"
    table.write_text(f"text,label\n{digit.name},1\n")
    done = call("evaluate", "--data", table, "--images", "--methods", "gi", "--no-runtime", "--patch", "7", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["provenance"]["items"] == "patches of 7 by 7 pixels"


# the small ViT for digits


def made_up_digits(place: Path) -> None:
    """A file like MNIST's, of bars that lie and bars that stand."""
    (place / "mnist").mkdir()
    images = np.zeros((950, 28, 28), np.uint8)
    images[::2, 4:24, 13:16] = 255
    images[1::2, 13:16, 4:24] = 255
    labels = (np.arange(950) % 2).astype(np.uint8)
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:20], "y_test": labels[:20]}
    np.savez(place / "mnist" / "mnist.npz", **arrays)


@pytest.mark.slow
def test_training_learns_and_says_what_it_did(tmp_path, monkeypatch):
    import json

    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    monkeypatch.setattr("headwater_experiments.digits.model.HELD_BACK", 50)
    made_up_digits(tmp_path)
    done = call("image", "train", "--out", tmp_path / "out", "--rounds", "4", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 900
    assert found["validation"]["accuracy"] > 0.9  # of bars that lie and bars that stand
    assert found["validation"]["total"] == 50
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"README.md", "config.json", "model.safetensors", "preprocessor_config.json", "training.json"}
    done = call("image", "table", "--model", tmp_path / "out", "--methods", "gi,lrp", "--rows", "4")
    assert done.exit_code == 0, done.output
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]] == ["`gi`", "`lrp`"]


def test_trainings_with_one_seed_are_one(tmp_path, monkeypatch):
    from headwater_experiments.digits.model import new_vit, parts
    from headwater_experiments.digits.training import DigitsRecipe, fit_digits

    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    monkeypatch.setattr("headwater_experiments.digits.model.HELD_BACK", 50)
    made_up_digits(tmp_path)
    states = []
    for seed in (0, 0, 1):
        data, valid = parts(seed)
        model = new_vit(seed, 16, 1, 2, 16)
        fit_digits(model, data[:64], valid[:10], DigitsRecipe(rounds=1, batch=32), seed, lambda done: None)
        states.append(model.classifier.weight.detach())
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_shifted_images_are_the_same_images_elsewhere():
    from headwater_experiments.digits.training import shift_images

    image = torch.zeros(50, 1, 28, 28)
    image[:, :, 10:14, 10:14] = 1
    moved = shift_images(image, 2, torch.Generator().manual_seed(0))
    assert torch.equal(moved.sum((1, 2, 3)), torch.full((50,), 16.0))
    tops = moved[:, 0].amax(2).argmax(1)
    assert set(tops.tolist()) == {8, 9, 10, 11, 12}


def test_the_checkpoint_reads_real_digits():
    from real_data import need_real_data

    from headwater.models.loading import load_image_model
    from headwater_experiments.digits.model import image_processor as made
    from headwater_experiments.digits.model import load_digits
    from headwater_experiments.digits.training import measure_accuracy

    need_real_data("MNIST")
    model, found = load_image_model(bundled_path(DIGITS))
    part = load_digits("test")[slice(0, 500)]
    assert measure_accuracy(model, part).value > 0.96
    image = Image.fromarray(np.full((28, 28), 90, np.uint8))
    assert torch.equal(
        found(image, return_tensors="pt")["pixel_values"], made()(image, return_tensors="pt")["pixel_values"]
    )
    normal = (90 / 255 - 0.1307) / 0.3081
    assert float(found(image, return_tensors="pt")["pixel_values"].mean()) == pytest.approx(normal, abs=1e-5)


def test_the_page_says_what_comes_out():
    """The picture in docs/images.md: class and score as they are printed there, to what another processor may round."""
    from headwater.models.loading import load_image_model

    root = Path(__file__).parents[1]
    model, found = load_image_model(bundled_path(DIGITS))
    e = hw.explain(model, root / "docs" / "images" / "digit.png", processor=found)
    page = (root / "docs" / "images.md").read_text(encoding="utf-8")
    assert f"target: {e.target}" in page
    said = [line for line in page.splitlines() if line.startswith("score: ")]
    assert float(said[0].split()[1]) == pytest.approx(e.score, abs=1e-3)
    rows = [[float(n) for n in line.split()] for line in page.splitlines() if line.count("+0.") + line.count("-0.") > 2]
    assert np.asarray(rows) == pytest.approx(e.patches.numpy(), abs=0.006)
