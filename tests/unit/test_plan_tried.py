"""`tfckpt plan` tries what it suggests where the save has recorded what the model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import pytest
from zoo.command_line import run

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import keras

def build():
    layers = [keras.Input((4,)), keras.layers.Dense(3, "relu", name="encoder"), {head}]
    return keras.Sequential(layers)
"""
# The head that is built, and whether the save has a probe → what is said; "" for nothing.
CASES = {
    "renamed": ('keras.layers.Dense(2, name="out")', "auto", "same function: 3 outputs, bit for"),
    "new": ('keras.layers.Dense(5, name="new")', "auto", "model/new is the first part whose"),
    "unrecorded": ('keras.layers.Dense(2, name="out")', None, ""),
    "not refused": ('keras.layers.Dense(2, name="classes")', "auto", ""),
}


def saved(path: Path, probe: Any) -> str:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, "relu", name="backbone"),
            layers.Dense(2, name="classes"),
        ]
    )
    return tfckpt.Checkpoint(model=model).save(path / "ckpt", probe=probe)


@pytest.mark.parametrize("case", CASES)
def test_the_suggestion_is_tried(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, probe, says = CASES[case]
    program = PROGRAM.format(head=head)
    if case == "not refused":
        program = program.replace('name="encoder"', 'name="backbone"')
    (tmp_path / f"tried_{case[:3]}.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    ended = run("plan", saved(tmp_path, probe), "--model", f"tried_{case[:3]}:build")
    assert ended.status == (0 if case == "not refused" else 1)
    if says:
        assert f"tried on the model: {'' if 'same' in says else 'another function: '}{says}" in (
            ended.out
        )
    else:
        assert "tried on the model" not in ended.out
