"""`tfckpt report`: pages, into which file, and what a browser never does."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from zoo.command_line import run
from zoo.html_page import ParsedPage

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_small_page_is_light(runs: Path, tmp_path: Path) -> None:
    assert len(page_of(tmp_path, runs).content.encode()) < 100_000


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


def test_the_file_has_a_name_of_its_own(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("report", runs).status == 0
    assert [path.name for path in tmp_path.glob("*.html")] == ["report-runs.html"]


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
