"""`tfckpt report`: what its pages say, into which file, and what a browser never does."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from zoo.command_line import run
from zoo.html_page import ParsedPage
from zoo.report_documents import HOSTILE, saved

import tfckpt
from tfckpt.pages.run_page import run_page

if TYPE_CHECKING:
    from tfckpt.tools.listing import ListedCheckpoint


def page_of(tmp_path: Path, *arguments: object) -> ParsedPage:
    target = tmp_path / "page.html"
    ended = run("report", *arguments, "--html", target, "--force")
    assert ended.status == 0, ended
    return ParsedPage(target.read_text(encoding="utf-8"))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three checkpoints of a run, of which the second is the best."""
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="hidden")])
    keep = [{"best": 3, "monitor": "loss", "mode": "min"}]
    checkpoint = tfckpt.Checkpoint(model=model)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path / "runs", None, keep=keep)
    for number, loss in enumerate([0.5, 0.25, 0.75], 1):
        model.layers[0].bias.assign([3.0 * number, 4.0 * number, 0.0])
        manager.save(step=10 * number, metrics={"loss": loss})
    return tmp_path / "runs"


def test_a_directory_is_a_run(runs: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, runs, "--keep", "latest=1", "--keep", "pin=1")
    assert [page.cell(f"ckpt-{n}", "step") for n in (1, 2, 3)] == ["10", "20", "30"]
    assert page.cell("ckpt-1", "notes") == "kept: pinned"
    assert page.cell("ckpt-2", "state") == "best"
    assert page.cell("ckpt-3", "state") == "goes next"
    assert [*page.rows] == ["ckpt-3", "ckpt-2", "ckpt-1"]


def test_a_page_asks_for_nothing(runs: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, runs)
    assert not re.search(r"https?:|//\w|@import|url\(", page.content)
    assert not [a for _, a in page.elements if {"src", "srcset", "data", "style"} & a.keys()]
    assert all((a.get("href") or "#").startswith("#") for _, a in page.elements)
    (policy,) = (a["content"] for a in page.all("meta") if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    for kind in ("script", "style"):
        content = next(text for tag, text in page.texts if tag == kind)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_a_checkpoint_a_difference_and_a_plan_are_pages_too(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(tmp_path, runs / "ckpt-1", "--values")
    assert page.cell("model/hidden/bias", "max") == "4"
    page = page_of(tmp_path, runs / "ckpt-1", runs / "ckpt-3", "--values")
    assert page.cell("model/hidden/bias", "largest") == "8"  # 12 and 4
    script = (
        "import keras\ndef build():\n"
        "    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, name='other')])\n"
    )
    (tmp_path / "empty_model.py").write_text(script)
    monkeypatch.syspath_prepend(tmp_path)
    page = page_of(tmp_path, runs / "ckpt-1", "--model", "empty_model:build")
    assert page.cell("model/hidden/bias", "status") == "UNEXPECTED"


@pytest.mark.parametrize("what", ["plan.json", "train.yaml"])
def test_what_is_no_checkpoint_is_refused(what: str, runs: Path, tmp_path: Path) -> None:
    (runs / what).write_text("{}")
    ended = run("report", runs / what, "--html", tmp_path / "x.html")
    assert ended.status == 1
    assert f"{runs / what}" in ended.err
    assert not (tmp_path / "x.html").exists()


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    found: Any = object()
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match="cannot be a page"):
        tfckpt.report_page(found, html=tmp_path / "page.html")


def test_a_page_is_written_over_only_with_force(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("kept")
    refused = run("report", runs, "--html", page)
    assert refused.status == 1
    assert "--force" in refused.err
    assert page.read_text() == "kept"
    assert run("report", runs, "--html", page, "--force").status == 0
    assert "ckpt-2" in page.read_text()


def test_open_shows_the_page(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    page_of(tmp_path, runs)
    assert not shown
    page_of(tmp_path, runs, "--open")
    assert shown == [(tmp_path / "page.html").as_uri()]


def test_misuse(runs: Path, tmp_path: Path) -> None:
    assert run("report", "--html", "x.html").status == 2
    ended = run("report", runs / "ckpt-1", runs / "ckpt-2", runs / "ckpt-3")
    assert ended.status == 2
    assert "unexpected argument" in ended.err
    ended = run("report", runs / "ckpt-1", runs / "ckpt-2", "--model", "a:b")
    assert ended.status == 2
    assert run("report", runs, "--keep", "latest", "--html", tmp_path / "x.html").status == 2
    ended = run("report", tmp_path / "absent", "--html", tmp_path / "x.html")
    assert ended.status == 1
    assert "no checkpoint" in ended.err


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
