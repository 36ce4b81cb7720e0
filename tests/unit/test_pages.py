"""What the pages of `tfckpt report` say, against what was saved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.html_page import ParsedPage
from zoo.plan_documents import HOSTILE, PLAN, step
from zoo.report_documents import saved

import tfckpt
from tfckpt.pages.documents import page_of
from tfckpt.pages.heat import Heat
from tfckpt.pages.shell import render
from tfckpt.stored.inspection.statistics import change, moved, norm

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def parsed(document: Mapping[str, Any]) -> ParsedPage:
    return ParsedPage(render(page_of(document)))


def in_order(text: str, *words: str) -> None:
    positions = [text.index(word) for word in words]
    assert positions == sorted(positions), dict(zip(words, positions, strict=True))


# --- a run


def test_a_run_says_what_is_best_kept_damaged_and_next() -> None:
    checkpoints = [
        saved(4, kept=["latest 2", "newest"], delete=False, next=False),
        saved(3, kept=["latest 2"], delete=False, next=True),
        saved(2, best=True, best_by="val_loss", kept=["best 1"], delete=False, next=False),
        saved(1, state="damaged", problem="its index ends too soon"),
    ]
    checkpoints = [{**one, "nbytes": 1 << 20} for one in checkpoints]
    page = parsed({"directory": "runs/a", "checkpoints": checkpoints})
    assert "1 checkpoint is damaged" in page.words()
    assert "ckpt-2 (step 200, epoch 2): val_loss 1" in page.words()
    assert page.cell("ckpt-4", "notes") == "kept: latest 2, newest"
    assert page.cell("ckpt-3", "state") == "goes next"
    assert page.cell("ckpt-2", "state") == "best"
    assert page.cell("ckpt-1", "notes") == "its index ends too soon"
    assert page.cell("ckpt-4", "val_loss") == "0.5"
    assert "4.0 MiB" in page.words()  # four times one
    assert "60 s" in page.words()  # between saves, median
    assert "tfckpt report runs/a/ckpt-3 --values --open" in page.words()


def test_a_run_of_checkpoints_that_nobody_recorded_is_shown_by_number() -> None:
    bare = {"step": None, "epoch": None, "metrics": {}, "finite": None, "state": "foreign"}
    page = parsed({"directory": "runs/a", "checkpoints": [saved(2, **bare), saved(1, **bare)]})
    assert "Over the saves" in page.words()
    assert page.cell("ckpt-1", "state") == "foreign"
    assert "--keep latest=3" in page.words()


def test_a_run_tells_what_is_best_and_not_kept_and_what_was_never_committed() -> None:
    best = saved(2, best=True, best_by="loss", kept=[], delete=True, next=True)
    bare = saved(1, state="uncommitted", kept=[], delete=False, next=False)
    page = parsed({"directory": "runs/a", "checkpoints": [saved(3), best, bare]})
    assert page.cell("ckpt-2", "state") == "best"
    assert page.cell("ckpt-2", "notes") == "best by loss; no rule keeps it: would be deleted"
    assert page.cell("ckpt-1", "state") == "uncommitted"
    with pytest.raises(KeyError):
        parsed({"directory": "runs/a", "checkpoints": [saved(1, state="<b>")]})


def test_hostile_text_of_a_run_does_nothing() -> None:
    checkpoint = saved(
        1,
        path=f"runs/{HOSTILE.replace('/', '')}-1",
        metrics={HOSTILE: 1.0},
        metadata={HOSTILE: [HOSTILE]},
        problem=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )
    page = parsed({"directory": HOSTILE, "checkpoints": [checkpoint, saved(2)]})
    assert len(page.all("script")) == 1
    assert not page.all("b\x1b[31m")
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "\x1b" not in page.content
    assert "\u202e" not in page.content


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


# --- a checkpoint


def test_weights_come_first_then_the_optimizer(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="a_layer")])
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(np.zeros((2, 4)), np.zeros((2, 3)), verbose=0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path, None)
    path = manager.save(step=7, metrics={"mae": 0.5})
    page = parsed(tfckpt.inspect(path).to_json())
    in_order("\n".join(page.rows), "model/a_layer", "optimizer", "metrics/")
    words = page.words()
    for word in ("TensorFlow", tfckpt.__version__, keras.__version__, "0.5", "UTC"):
        assert word in words
    record = tfckpt.inspect(path).record
    assert record is not None
    assert record.created[:19].replace("T", " ") in words


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
    path = run.save()
    page = parsed(tfckpt.inspect(path).to_json())
    in_order(page.words(), "Where the values come from", zoo, "finetune", "2 LOADED")
    rows = [row.to_json() for row in tfckpt.list_checkpoints(tmp_path / "run")]
    page = parsed({"directory": "run", "checkpoints": rows})
    assert f"{zoo} by policy finetune" in page.words()


# --- a difference


def sides(name: str, **more: Any) -> dict[str, Any]:
    value = {"name": name, "role": "weight", "dtype": "float32", "shape": [2], "nbytes": 8}
    return {"kind": "value", "a": value, "b": value, **more}


def test_the_layer_that_changed_most_stands_first() -> None:
    def changed(moved: float) -> dict[str, Any]:
        counts = {"least": 0.0, "greatest": 1.0, "a": [1, 1], "b": [0, 2]}
        distance = {"differing": 1, "largest": moved, "relative": moved}
        return {**distance, "change": {"moved": moved, "norm": 2.0, **counts}}

    document = {
        "a": "runs/a/ckpt-1",
        "b": "runs/a/ckpt-2",
        "equal": 1,
        "differences": [
            sides("model/calm/kernel", **changed(0.002)),
            sides("model/wild/kernel", **changed(1.0)),
            sides("model/wild/bias", **changed(0.0002)),
        ],
    }
    page = parsed(document)
    assert "3 values differ, 1 is equal" in page.words()
    assert [link["href"] for link in page.all("a")][:2] == ["#model/wild", "#model/calm"]
    assert page.cell("model/wild/kernel", "change") == "50%"
    assert page.cell("model/calm/kernel", "change") == "0.1%"
    # the layer as one: the root of 1² + 0.0002² over the root of 2² + 2²
    assert page.cell("model/wild", "change") == f"{100 * 1 / np.sqrt(8):.3g}%"
    hues = {row["id"]: row["data-hue"] for row in page.all("tr") if "data-hue" in row}
    assert hues["model/wild/kernel"] == "heat6"
    assert hues["model/calm/kernel"] != "heat6"


def test_one_value_is_not_spoken_of_as_several() -> None:
    one = {"a": "x", "b": "y", "equal": 1, "differences": [sides("model/a")]}
    assert "1 value differs, 1 is equal" in parsed(one).words()
    assert "no differences: 1 value equal" in parsed({**one, "differences": []}).words()


def test_change_is_that_of_numpy() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(50, 30)).astype(np.float32), draw.normal(size=(50, 30))
    found = change(a, b)
    assert found is not None
    assert found.moved == pytest.approx(np.linalg.norm(b - a)) == pytest.approx(moved(a, b))
    assert found.norm == pytest.approx(np.linalg.norm(a)) == pytest.approx(norm(a))
    ends = min(a.min(), b.min()), max(a.max(), b.max())
    assert (found.least, found.greatest) == ends
    for side, counts in ((a, found.a), (b, found.b)):
        expected, _ = np.histogram(side.astype(np.float64), bins=24, range=ends)
        assert sum(counts) == 1500
        assert np.abs(np.subtract(counts, expected)).max() <= 1  # at the edge of a bin


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array([1.0]), np.array([1.0, 2.0])),
        (np.array([b"x"], object), np.array([b"y"], object)),
    ],
)
def test_what_cannot_be_compared_has_no_change(a: Any, b: Any) -> None:
    assert change(a, b) is None
    assert moved(a, b) is None


def test_numbers_that_are_not_finite_give_no_norm() -> None:
    found = change(np.array([1.0, np.nan]), np.array([1.0, 2.0]))
    assert found is not None
    assert (found.moved, found.norm) == (None, None)
    assert (sum(found.a), sum(found.b)) == (1, 2)
    assert norm(np.array([np.inf])) is None
    assert norm(np.array([], np.float32)) == 0.0


def test_heat_goes_from_the_least_to_the_greatest() -> None:
    heat = Heat([1e-3, 1e-2, 1e-1])
    assert [heat.hue(one) for one in (1e-3, 1e-2, 1e-1)] == ["heat0", "heat3", "heat6"]
    assert Heat([]).hue(0.0) == "heat0"
    assert Heat([0.5]).hue(0.5) == "heat6"
    assert [Heat([0.5]).hue(beyond) for beyond in (0.4, 0.6)] == ["heat0", "heat6"]
    assert Heat([1e-30, 1.0]).least == pytest.approx(1e-4)  # four decades, however small the least


# --- a plan, a restore


def test_a_plan_says_first_what_is_wrong() -> None:
    page = parsed(PLAN)
    words = page.words()
    in_order(words, "refused", "matches nothing (line 7)", "<b>gone</b>", "Sizes")
    assert "→ try y" in words
    assert len(page.all("script")) == 1


def test_a_hint_stands_once_below_the_reasons_that_share_it() -> None:
    shapes = [
        step("MISMATCH", "error", f"model/{n}", reason=f"shape ({n},)", hint="exclude it")
        for n in (2, 10)
    ]
    other = step("MISSING", "error", "model/c", reason="gone", hint="look", stored=None)
    words = parsed({**PLAN, "problems": [], "steps": [shapes[0], other, shapes[1]]}).words()
    in_order(words, "shape (2,)", "shape (10,)", "→ exclude it", "gone")
    assert words.count("→ exclude it") == 1


def test_a_refused_plan_says_nothing_of_values_that_were_restored() -> None:
    page = parsed(PLAN)
    assert "refused: nothing would be restored" in page.words()
    assert page.words().count(" restored") == page.words().count("would be restored") == 1
    (hue,) = (a["data-hue"] for a in page.all("tr") if a.get("id") == "model/a")
    assert hue == "grey"


def test_names_stand_on_both_sides_and_refused_ones_first() -> None:
    renamed = step("RENAMED", "ok", "model/new", source="model/old")
    missing = step("MISSING", "error", "model/z", reason="gone", stored=None)
    page = parsed({**PLAN, "steps": [renamed, missing]})
    assert page.cell("model/new", "in the checkpoint") == "model/oldfloat32 (2, 3)"
    assert page.cell("model/new", "in the model") == "model/newfloat32 (2, 3)"
    assert page.cell("model/z", "in the checkpoint") == "–"
    (table,) = page.all("table")
    assert table["data-sort"] == "status"
    ranks = {attributes["data-order"] for attributes in page.all("b") if "data-order" in attributes}
    assert len(ranks) == 2


DONE: dict[str, Any] = {
    **PLAN,
    "ok": True,
    "problems": [],
    "steps": PLAN["steps"][:1],
    "path": "zoo/ckpt-1",
    "rejected": ["zoo/ckpt-2: torn\n  Copy it again."],
    "step": 3,
    "epoch": None,
    "metrics": {},
    "training": "the epoch and the callbacks go on",
    "training_state": ["epoch", "callbacks"],
}


def test_a_restore_says_what_of_the_training_came_back() -> None:
    words = parsed(DONE).words()
    in_order(words, "restored: 1 value, 24 B", "What of the training comes back", "Sizes")
    assert "the epoch and the callbacks go on" in words
    assert "has a value to restore" not in words
    assert "passed over: zoo/ckpt-2: torn; Copy it again." in words


def test_what_would_make_a_plan_possible_is_a_line_to_paste() -> None:
    document = {**PLAN, "suggestion": {"exclude": ["model/head/**"]}}
    assert 'exclude: ["model/head/**"]' in parsed(document).words()


def test_a_plan_shows_the_keys_of_its_policy(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="body")])
    zoo = tfckpt.Checkpoint(model=model).write(tmp_path / "zoo")
    keys = {"include": ["model/body/**"], "exclude": ["model/body/bias"], "on_unexpected": "ignore"}
    config = {
        "version": 1,
        "restore": {"path": zoo, "policy": "finetune"},
        "policies": {"finetune": keys},
    }
    document = tfckpt.plan(config, model=model).to_json()
    assert document["policies"] == {"finetune": keys}
    page = parsed(document)
    in_order(page.words(), "Policy finetune", 'include: ["model/body/**"]', "Values")
    assert page.cell("model/body/bias", "status") == "EXCLUDED"


# --- colors


def test_text_has_contrast_on_every_color() -> None:
    """At least 4.5, as WCAG 2.1 asks for (1.4.3), in the light and in the dark mode."""
    style = next(text for tag, text in parsed(PLAN).texts if tag == "style")
    modes = [dict(re.findall(r"--(\w+): (#\w+)", part)) for part in style.split("@media")[:2]]
    assert len(modes) == 2
    for colors in modes:
        grounds = [name for name in colors if re.match(r"heat\d|blue|violet|grey|amber", name)]
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
