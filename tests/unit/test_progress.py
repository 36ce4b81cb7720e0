"""The bar of commands that read for seconds: on a terminal's standard error, and nowhere else."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tfckpt.cli.main import main
from tfckpt.cli.terminal import amount_and_speed

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    import tensorflow as tf

    return [
        str(
            tf.train.Checkpoint(v=tf.Variable(np.full(3000, n, "float32"))).write(f"{tmp_path}/{n}")
        )
        for n in (1, 2)
    ]


@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize("command", ["diff", "inspect", "verify", "convert"])
def test_a_bar_says_how_much_is_done(
    command: str, person: bool, pair: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {
        "diff": [*pair, "--values"],
        "inspect": [pair[0], "--values"],
        "verify": [pair[0]],
        "convert": [pair[0], str(tmp_path / "a.npz")],
    }
    shown = Terminal() if person else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["tfckpt", command, *arguments[command]]) == (command == "diff")
    if not person:
        assert shown.getvalue() == ""
        return
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    total = {"diff": "23.4 KiB", "verify": "11"}.get(command, "11.7 KiB")
    assert re.search(rf"\d \w+ of {re.escape(total)}", frames)
    assert "?" not in frames
    assert "TB/s" not in frames


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "speed", "text"),
    [
        (0, None, 0.0, None, ""),
        (0, 100, 0.0, None, "0 B of 100 B"),
        (1 << 20, 5 << 30, 0.1, 5e12, "1.0 MiB of 5.0 GiB"),
        (1 << 30, 5 << 30, 8.0, float(128 << 20), "1.0 GiB of 5.0 GiB, 128.0 MiB/s, 32 s left"),
        (0, 900 << 30, 9.0, float(1 << 30), "0 B of 900.0 GiB, 1.0 GiB/s, 15 min left"),
        (100, 100, 9.0, 0.0, "100 B of 100 B"),
    ],
)
def test_speed_and_time_are_shown_once_they_are_known(
    done: int, total: int | None, elapsed: float, speed: float | None, text: str
) -> None:
    assert amount_and_speed(done, total, elapsed, speed) == text
