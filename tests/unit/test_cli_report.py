"""`tfckpt report`: which page of what, into which file, and what a browser never does."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo.command_line import run
from zoo.html_page import ParsedPage
from zoo.plan_documents import HOSTILE, PLAN, step

import tfckpt
from tfckpt.stored.bundles.index_encoder import encode_object_graph
from tfckpt.stored.bundles.writing.write import BundleWriter
from tfckpt.stored.graphs.writer import graph_of_names, key_of
from tfckpt.tools.movement import movement


def save(prefix: Path, values: dict[str, Any]) -> str:
    with BundleWriter(str(prefix)) as writer:
        for name, value in values.items():
            writer.add(key_of(name), np.asarray(value))
        graph = np.array(encode_object_graph(graph_of_names(values)), object)
        writer.add("_CHECKPOINTABLE_OBJECT_GRAPH", graph)
        writer.finish()
    return str(prefix)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    values = {
        "model/a/kernel": np.linspace(-1, 3, 200, dtype=np.float32).reshape(10, 20),
        "model/a/bias": np.zeros(7, np.float32),
        "model/b/kernel": np.array([1, np.nan, np.inf], np.float32),
        HOSTILE: np.ones(3, np.float16),
        "words": np.array([b"x"], object),
    }
    return save(tmp_path / "ckpt-1", values)


def page_of(tmp_path: Path, *arguments: object) -> ParsedPage:
    target = tmp_path / "page.html"
    ended = run("report", *arguments, "--html", target, "--force")
    assert ended.status == 0, ended
    return ParsedPage(target.read_text(encoding="utf-8"))


def test_every_value_is_there_with_its_numbers(checkpoint: str, tmp_path: Path) -> None:
    page = page_of(tmp_path, checkpoint, "--values")
    kernel = np.linspace(-1, 3, 200, dtype=np.float32)
    assert {"model/a/kernel", "model/a/bias", "model/b/kernel", "words"} < page.rows.keys()
    assert page.cell("model/a/kernel", "type") == "float32 (10, 20)"
    assert page.cell("model/a/kernel", "size") == "800 B"
    assert page.cell("model/a/kernel", "min") == "−1"
    assert page.cell("model/a/kernel", "max") == "3"
    assert page.cell("model/a/kernel", "mean") == f"{kernel.mean():.3g}" == "1"
    assert page.cell("model/a/kernel", "std") == f"{kernel.std():.3g}"
    assert page.cell("model/a/bias", "zeros") == "100%"
    assert page.cell("model/b/kernel", "NaN or infinite") == "2"
    assert page.cell("words", "min") == ""
    assert "model/a" in page.rows  # the layer, with the size of both
    assert page.cell("model/a", "size") == "828 B"


def test_a_page_asks_for_nothing(checkpoint: str, tmp_path: Path) -> None:
    page = page_of(tmp_path, checkpoint, "--values")
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


def test_a_hostile_name_is_shown_and_does_nothing(checkpoint: str, tmp_path: Path) -> None:
    page = page_of(tmp_path, checkpoint)
    assert len(page.all("script")) == 1
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "\x1b" not in page.content
    assert "\u202e" not in page.content
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert shown in page.rows


def test_a_small_page_is_light(checkpoint: str, tmp_path: Path) -> None:
    assert len(page_of(tmp_path, checkpoint, "--values").content.encode()) < 300_000


def test_two_checkpoints_are_compared(checkpoint: str, tmp_path: Path) -> None:
    other = save(
        tmp_path / "ckpt-2",
        {"model/a/kernel": np.zeros((10, 20), np.float32), "model/c": np.ones(2)},
    )
    page = page_of(tmp_path, checkpoint, other, "--values")
    for word in ("only in a", "only in b", "different value"):
        assert word in page.words()
    assert page.cell("model/a/kernel", "differ") == "200"
    assert page.cell("model/a/kernel", "largest") == "3"
    assert page.cell("model/a/kernel", "change") == "100%"


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


def test_a_directory_is_a_run_and_a_checkpoint_of_it_a_checkpoint(
    runs: Path, tmp_path: Path
) -> None:
    page = page_of(tmp_path, runs, "--keep", "latest=1", "--keep", "pin=1")
    assert [page.cell(f"ckpt-{n}", "step") for n in (1, 2, 3)] == ["10", "20", "30"]
    assert page.cell("ckpt-1", "notes") == "kept: pinned"
    assert page.cell("ckpt-2", "state") == "best"
    assert page.cell("ckpt-3", "state") == "goes next"
    assert page_of(tmp_path, runs / "ckpt-3").rows["model/hidden/bias"]


def test_of_several_checkpoints_the_page_says_how_far_each_layer_moved(
    runs: Path, tmp_path: Path
) -> None:
    page = page_of(tmp_path, *(runs / f"ckpt-{number}" for number in (1, 2, 3)))
    assert page.heads[:4] == ["layer ↓ step →", "20", "30", "size"]
    # the bias is (3, 4, 0) times 1, 2, 3: it moves by 5 from 5, then by 5 from 10; from 5 by 10
    assert page.rows["model/hidden/bias"][1:3] == ["100%", "50%"]
    assert page.rows["first:model/hidden/bias"][1:3] == ["100%", "200%"]
    assert page.rows["model/hidden/kernel"][1:3] == ["0%", "0%"]


def test_a_newer_checkpoint_that_is_passed_over_is_named(tmp_path: Path) -> None:
    for directory, number in (("a", 1), ("a", 2), ("b", 1), ("c", 1)):
        (tmp_path / directory).mkdir(exist_ok=True)
        save(tmp_path / directory / f"ckpt-{number}", {"model/kernel": np.ones(number, np.float32)})
    (tmp_path / "a/ckpt-2.index").write_bytes(b"not an index")
    for others in (["b"], ["b", "c"]):  # a difference, and a movement
        page = page_of(tmp_path, tmp_path / "a", *(tmp_path / other for other in others))
        assert f"passed over: {tmp_path}/a/ckpt-2" in page.words()


def test_movement_is_that_of_numpy_and_blank_where_a_side_is_missing(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    first, second, third = (draw.normal(size=(5, 4)).astype(np.float32) for _ in range(3))
    bias = np.ones(4, np.float32)
    kernel = "model/a/kernel"
    save(tmp_path / "ckpt-1", {kernel: first, "model/a/bias": bias})
    save(tmp_path / "ckpt-2", {kernel: second, "model/a/bias": bias, "model/new": bias})
    save(tmp_path / "ckpt-3", {kernel: third, "model/a/bias": bias[:2], "model/new": 2 * bias})
    found = movement([str(tmp_path / f"ckpt-{number}") for number in (1, 2, 3)])
    values = {value.name: value for value in found.values}
    assert values[kernel].norms == pytest.approx([*map(np.linalg.norm, (first, second, third))])
    steps = [np.linalg.norm(second - first), np.linalg.norm(third - second)]
    assert values[kernel].from_previous == (None, *map(pytest.approx, steps))
    assert values[kernel].from_first[2] == pytest.approx(np.linalg.norm(third - first))
    assert values["model/a/bias"].from_previous == (None, 0.0, None)  # of another shape
    assert values["model/new"].from_previous == (None, None, 2.0)
    assert values["model/new"].from_first == (None, None, None)
    page = page_of(tmp_path, *(tmp_path / f"ckpt-{number}" for number in (1, 2, 3)))
    assert page.heads[:4] == ["layer ↓ checkpoint →", "ckpt-2", "ckpt-3", "size"]
    assert page.rows["model/new"][1:3] == ["", "100%"]


def test_names_with_and_without_a_number_stand_side_by_side(tmp_path: Path) -> None:
    values = {f"model/{name}": np.ones(2) for name in ("w1", "w", "w10", "w2")}
    page = page_of(tmp_path, save(tmp_path / "ckpt-1", values))
    assert [*page.rows] == [f"model{name}" for name in ("", "/w", "/w1", "/w2", "/w10")]


def test_a_plan_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    assert "refused: nothing would be restored" in page_of(tmp_path, tmp_path / "plan.json").words()


@pytest.mark.parametrize("command", ["inspect", "list", "diff"])
def test_what_a_command_prints_makes_the_same_page(
    command: str, runs: Path, tmp_path: Path
) -> None:
    sources: list[object] = {
        "inspect": [runs / "ckpt-1"],
        "list": [runs],
        "diff": [runs / "ckpt-1", runs / "ckpt-2"],
    }[command]
    (tmp_path / "x.json").write_text(run(command, *sources, "--json").out)
    printed = page_of(tmp_path, tmp_path / "x.json").content
    assert printed == page_of(tmp_path, *sources).content


@pytest.mark.parametrize(
    "change",
    [
        {"steps": None},
        {"steps": [{}]},
        {"steps": [step("NONSENSE", "ok", "a")]},
        {"steps": [step("LOADED", "ok", "a", live={"dtype": 1, "shape": ["<"], "nbytes": 1})]},
        {"steps": [step("LOADED", "ok", "a", live={"dtype": "x", "shape": [], "nbytes": -1})]},
        {"nbytes": "<script>", "ok": True},
        {"problems": [3]},
        {"counts": {"LOADED": 1e999}, "ok": True},
    ],
    ids=str,
)
def test_a_document_that_is_none_makes_no_page(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({**PLAN, **change}))
    ended = run("report", tmp_path / "plan.json", "--html", tmp_path / "page.html")
    assert ended.status == 1
    assert "is not a JSON document of list, inspect, diff, plan or a restore" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1}', "[" * 100_000, "\0"])
def test_json_that_is_none_is_said_to_be(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    ended = run("report", tmp_path / "x.json", "--html", tmp_path / "page.html")
    assert ended.status == 1
    assert "x.json" in ended.err


def test_a_page_is_written_over_only_with_force(checkpoint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("kept")
    refused = run("report", checkpoint, "--html", page)
    assert refused.status == 1
    assert "--force" in refused.err
    assert page.read_text() == "kept"
    assert run("report", checkpoint, "--html", page, "--force").status == 0
    assert "model/a/kernel" in page.read_text()


def test_the_file_has_a_name_of_its_own(
    checkpoint: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    others = [runs / "ckpt-2", runs / "ckpt-3"]
    sources: list[list[object]] = [[checkpoint], [runs], [checkpoint, *others], ["plan.json"]]
    for source in sources:
        assert run("report", *source).status == 0
    names = {path.name for path in tmp_path.glob("*.html")}
    assert names == {
        *("report-ckpt-1.html", "report-runs.html", "report-ckpt-1-ckpt-3.html"),
        "report-plan.html",
    }


def test_a_config_is_planned_first(tmp_path: Path) -> None:
    ended = run("report", tmp_path / "t.yaml")
    assert ended.status == 2
    assert f"tfckpt plan {tmp_path}/t.yaml --model … --json > plan.json" in ended.err
    assert "tfckpt report plan.json" in ended.err


def test_open_shows_the_page(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    page_of(tmp_path, checkpoint)
    assert not shown
    page_of(tmp_path, checkpoint, "--open")
    assert shown == [(tmp_path / "page.html").as_uri()]


def test_what_python_returns_has_a_page(runs: Path, tmp_path: Path) -> None:
    found = tfckpt.inspect(runs / "ckpt-1")
    written = tfckpt.report_page(found, html=tmp_path / "page.html")
    assert "model/hidden/bias" in ParsedPage(Path(written).read_text(encoding="utf-8")).rows


def test_misuse(checkpoint: str, runs: Path, tmp_path: Path) -> None:
    assert run("report", "--html", "x.html").status == 2
    ended = run("report", checkpoint, "--keep", "latest=1", "--html", tmp_path / "x.html")
    assert ended.status == 2
    assert "is for the page of a run" in ended.err
    assert run("report", runs, "--keep", "latest", "--html", tmp_path / "x.html").status == 2
