"""What the pages of `tfckpt report` say, against what was saved."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from zoo.html_page import ParsedPage
from zoo.report_documents import HOSTILE, RUN, saved

import tfckpt
from tfckpt.pages.run_page import run_page

if TYPE_CHECKING:
    from tfckpt.tools.listing import ListedCheckpoint


def parsed(*found: ListedCheckpoint) -> ParsedPage:
    return ParsedPage(run_page("runs/a", found))


def test_a_run_says_what_is_best_kept_damaged_and_next() -> None:
    checkpoints = [
        saved(4, kept=("latest 2", "newest"), delete=False, next=False),
        saved(3, kept=("latest 2",), delete=False, next=True),
        saved(2, best_by="val_loss", kept=("best 1",), delete=False, next=False),
        saved(1, state="damaged", problem="its index ends too soon"),
    ]
    page = parsed(*(replace(one, nbytes=1 << 20) for one in checkpoints))
    assert "1 checkpoint is damaged" in page.words()
    assert "ckpt-2 (step 200, epoch 2): val_loss 1" in page.words()
    assert page.cell("ckpt-4", "notes") == "kept: latest 2, newest"
    assert page.cell("ckpt-3", "state") == "goes next"
    assert page.cell("ckpt-2", "state") == "best"
    assert page.cell("ckpt-1", "notes") == "its index ends too soon"
    assert page.cell("ckpt-4", "val_loss") == "0.5"
    assert "4.0 MiB" in page.words()  # four times one
    assert "60 s" in page.words()  # between saves, median


def test_a_run_of_checkpoints_that_nobody_recorded_is_shown_by_number() -> None:
    page = parsed(*(saved(number, head=None, state="foreign") for number in (2, 1)))
    assert "Over the saves" in page.words()
    assert page.cell("ckpt-1", "state") == "foreign"
    assert "--keep latest=3" in page.words()


def test_a_run_tells_what_is_best_and_not_kept_and_what_was_never_committed() -> None:
    best = saved(2, best_by="loss", kept=(), delete=True, next=True)
    bare = saved(1, state="uncommitted", kept=(), delete=False, next=False)
    page = parsed(saved(3), best, bare)
    assert page.cell("ckpt-2", "state") == "best"
    assert page.cell("ckpt-2", "notes") == "best by loss; no rule keeps it: would be deleted"
    assert page.cell("ckpt-1", "state") == "uncommitted"


def test_hostile_text_of_a_run_does_nothing() -> None:
    checkpoint = saved(
        1,
        prefix=f"runs/{HOSTILE.replace('/', '')}-1",
        metrics={HOSTILE: 1.0},
        problem=HOSTILE,
    )
    page = ParsedPage(run_page(HOSTILE, [checkpoint, saved(2)]))
    assert len(page.all("script")) == 1
    assert not page.all("b\x1b[31m")
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "\x1b" not in page.content
    assert "\u202e" not in page.content
    shown = HOSTILE.replace("/", "").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert f"{shown}-1" in page.rows


def test_checkpoints_stand_where_their_steps_are() -> None:
    """Twelve at equal distances, and bars as high as sizes."""
    page = parsed(*RUN)
    links = [a["href"] for a in page.all("a") if "mark" in (a.get("class") or "")]
    assert links == [f"#ckpt-{number}" for number in range(1, 13)]
    moves = [a["transform"] or "" for a in page.all("g") if "transform" in a]
    at = [float(move[10:].split(",")[0]) for move in moves]
    assert [b - a for a, b in itertools.pairwise(at)] == pytest.approx(
        [at[1] - at[0]] * 11, abs=0.2
    )
    bars = [a for a in page.all("rect") if a.get("class") == "bar"][-12:]
    heights = [float(bar["height"] or 0) for bar in bars]
    sizes = [(1 << 20) + (number << 17) for number in range(1, 13)]
    expected = [size / sizes[-1] for size in sizes]
    assert [height / heights[-1] for height in heights] == pytest.approx(expected, abs=1e-2)


def test_what_is_known_of_a_checkpoint_is_its_title() -> None:
    titles = [text for tag, text in parsed(*RUN).texts if tag == "title"]
    (third,) = [title for title in titles if title.startswith("ckpt-3 ")]
    for words in (
        "step 300, epoch 3",
        "val_loss 0.666667",
        "1.4 MiB, 60 s after",
        "best by val_loss",
    ):
        assert words in third


def test_where_the_values_come_from_is_said(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="body")])
    zoo = tfckpt.Checkpoint(model=model).write(tmp_path / "zoo")
    config = {
        "version": 1,
        "manager": {"directory": str(tmp_path / "run")},
        "restore": {"path": zoo, "policy": "finetune"},
        "policies": {"finetune": {"include": ["model/body/**"]}},
    }
    run = tfckpt.from_config(config, model=model)
    run.restore()
    run.save()
    words = parsed(*tfckpt.list_checkpoints(tmp_path / "run")).words()
    assert f"{zoo} by policy finetune" in words
    words = page_about(tmp_path / "run", tmp_path, newest=True).words()
    positions = [words.index(one) for one in ("Where the values come from", "2 LOADED")]
    assert positions == sorted(positions)


def test_what_goes_with_the_next_save_does(tmp_path: Path) -> None:
    import tensorflow as tf

    keep = [{"latest": 2}, {"best": 1, "monitor": "loss", "mode": "min"}]
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(0))
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=keep)
    for number, loss in enumerate([0.5, 0.1, 0.4, 0.3]):
        manager.save(step=number, metrics={"loss": loss})
    rows = tfckpt.list_checkpoints(tmp_path, keep=keep)
    assert [(row.number, row.delete, row.next) for row in rows] == [
        *((4, False, False), (3, False, True), (2, False, False))
    ]
    manager.save(step=4, metrics={"loss": 0.35})
    assert [row.number for row in tfckpt.list_checkpoints(tmp_path)] == [5, 4, 2]
    assert tfckpt.list_checkpoints(tmp_path)[0].next is None


# --- a checkpoint, a difference, a plan


def page_about(about: Any, tmp_path: Path, *, newest: bool = False, **more: Any) -> ParsedPage:
    if newest:
        about = tfckpt.list_checkpoints(about)[0].prefix
    written = tfckpt.report_page(about, html=tmp_path / "page.html", force=True, **more)
    return ParsedPage(Path(written).read_text(encoding="utf-8"))


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """Two checkpoints, between which a bias has changed by a half and a value has gone."""
    import tensorflow as tf

    kernel, bias = tf.Variable([[1.0, 2.0], [3.0, float("nan")]]), tf.Variable([0.5, 1.0])
    layer = tf.train.Checkpoint(kernel=kernel, bias=bias)
    both = tfckpt.Checkpoint(model=tf.train.Checkpoint(one=layer, two=tf.Variable([1])))
    first = both.write(tmp_path / "first")
    bias.assign([0.5, 2.0])
    return first, tfckpt.Checkpoint(model=tf.train.Checkpoint(one=layer)).write(tmp_path / "second")


def test_a_checkpoint_is_a_page(two: tuple[str, str], tmp_path: Path) -> None:
    page = page_about(two[0], tmp_path, values=True)
    assert {*page.rows} >= {"model/one/kernel", "model/one/bias", "model/two"}
    assert page.cell("model/one/kernel", "type") == "float32 (2, 2)"
    assert page.cell("model/one/kernel", "max") == "3"
    assert page.cell("model/one/kernel", "NaN/inf") == "1"
    assert page.cell("model/one/bias", "mean") == "0.75"
    assert page.cell("model/one/bias", "size") == "8 B"
    assert "min" not in page_about(two[0], tmp_path).heads


def test_a_difference_is_a_page(two: tuple[str, str], tmp_path: Path) -> None:
    page = page_about(tfckpt.diff(*two, values=True), tmp_path)
    assert page.cell("model/one/bias", "difference") == "value"
    assert page.cell("model/one/bias", "elements that differ") == "1"
    assert (page.cell("model/one/bias", "largest"), page.cell("model/one/bias", "relative")) == (
        *("1", "0.5"),
    )
    assert page.cell("model/two", "difference") == "only a"
    assert "nothing differs" in page_about(tfckpt.diff(two[0], two[0]), tmp_path).words()


def test_a_plan_is_a_page(two: tuple[str, str], tmp_path: Path) -> None:
    import tensorflow as tf

    kernel, bias = tf.Variable(tf.zeros((3, 2))), tf.Variable([0.0, 0.0])
    layer = tf.train.Checkpoint(kernel=kernel, bias=bias)
    plan = tfckpt.plan(two[1], model=tf.train.Checkpoint(one=layer))
    page = page_about(plan, tmp_path)
    assert "refused" in page.words()
    assert page.cell("model/one/kernel", "status") == "MISMATCH"
    assert page.cell("model/one/bias", "status") == "LOADED"


def test_hostile_names_of_values_do_nothing(tmp_path: Path) -> None:
    import tensorflow as tf

    name = HOSTILE.replace("/", "")
    path = tfckpt.Checkpoint(model=tf.train.Checkpoint(**{name: tf.Variable(1.0)})).write(
        tmp_path / "x"
    )
    page = page_about(path, tmp_path)
    assert len(page.all("script")) == 1
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "\x1b" not in page.content


# --- colors


def test_text_has_contrast_on_every_color() -> None:
    """At least 4.5, as WCAG 2.1 asks for (1.4.3), in the light and in the dark mode."""
    style = next(text for tag, text in parsed(*RUN).texts if tag == "style")
    modes = [dict(re.findall(r"--(\w+): (#\w+)", part)) for part in style.split("@media")[:2]]
    assert len(modes) == 2
    for colors in modes:
        grounds = [name for name in colors if re.match(r"blue|violet|grey|amber", name)]
        grounds += ["green", "teal", "orange", "red", "page", "panel"]
        pairs = [("text", ground) for ground in grounds]
        pairs += [("quiet", "page"), ("quiet", "panel"), ("link", "page")]
        pairs += [(f"line{number}", "page") for number in range(4)]
        for ink, ground in pairs:
            assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
