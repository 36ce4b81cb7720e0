"""What each command prints, where, and its exit status: in a pipe, at a terminal, and as JSON."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden.command_lines import COMMANDS, CONFIGS, SCRIPT
from golden.files import check, check_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000.0
# What another machine, another version or another minute prints.
VERSIONS = "tensorflow|keras|tf_keras|tfckpt"
FACTS = "Python|others|file system|free space"
VARY = (
    (re.compile(r"[0-9a-f]{64}"), "<sha256>"),
    (re.compile(r"sha256 [0-9a-f]{12}…"), "sha256 <digest>…"),
    (re.compile(rf'"({VERSIONS}|{FACTS}|run)": "[^"]*"'), r'"\1": "…"'),
    (re.compile(r"\.[0-9a-f]{8}\.tmp"), ".<random>.tmp"),
    (re.compile(rf"^({VERSIONS}|{FACTS})(  +| \d).*", re.MULTILINE), r"\1 …"),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with runs, checkpoints of others, damage, configs and a script."""
    import tensorflow as tf
    import tf_keras  # noqa: F401 - a record names every package of the process

    import tfckpt

    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("place")
        patch.chdir(root)
        patch.syspath_prepend(root)
        patch.setattr("time.time", lambda: NOW)
        for name, text in (*CONFIGS.items(), ("train_golden.py", SCRIPT)):
            Path(name).write_text(text, encoding="utf-8")
        import train_golden

        model = train_golden.build()
        checkpoint = tfckpt.Checkpoint(model=model)
        # Other tests of the process may have made generators.
        keep = tfckpt.CheckpointManager(checkpoint, "run", None, random_generators=False)
        for number, loss in ((1, 0.5), (2, 0.25), (3, 0.75)):
            model.layers[0].bias.assign([float(number)] * 3)
            metadata = {"note": "first"} if number == 1 else {}
            keep.save(step=number * 1000, epoch=number, metrics={"loss": loss}, metadata=metadata)
        tf.train.Checkpoint(model=model).save("theirs/ckpt")
        values = {"w": tf.Variable([[1.0, 2.0]]), "a\x1b[31m": tf.Variable([float("nan"), 1.0])}
        tfckpt.Checkpoint(model=tf.train.Checkpoint(**values)).write("odd/one")
        for directory, numbers in (("damaged", (1, 2)), ("bad", (1, 2))):
            small = tfckpt.Checkpoint(model=tf.train.Checkpoint(w=tf.Variable([[1.0, 2.0]])))
            for number in numbers:
                small.write(f"{directory}/ckpt-{number}")
        for file in ("damaged/ckpt-2.data-00000-of-00001", "bad/ckpt-2.data-00000-of-00001"):
            data = bytearray(Path(file).read_bytes())
            data[-1] ^= 1
            Path(file).write_bytes(bytes(data))
        Path("damaged/ckpt-1.index").write_bytes(b"\0" * 100)
        Path("empty").mkdir()
        yield root
    sys.modules.pop("train_golden", None)


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it for each test."""
    copied = shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(copied)
    monkeypatch.setattr("time.time", lambda: NOW + 3700)
    return copied


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_prints_what_it_did(
    verb: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfckpt.cli.main import main

    for name, value in (("COLUMNS", "80"), ("TERM", "xterm"), ("COLORTERM", "")):
        monkeypatch.setenv(name, value)
    lines = []
    for line in COMMANDS[verb].strip().splitlines():
        words = shlex.split(line.removeprefix("@ "))
        out, err = Terminal() if line.startswith("@ ") else io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["tfckpt", *words])
        lines += [f"$ {line}", *shown(out, place)]
        lines += [f"! {text}" for text in shown(err, place)]
        lines += [f"= {status}", ""]
    check(f"commands/{verb}", lines)


def shown(stream: io.StringIO, place: Path) -> list[str]:
    text = stream.getvalue().replace(str(place), "<place>").replace("\x1b", "␛")
    for pattern, same in VARY:
        text = pattern.sub(same, text)
    return text.splitlines()


def test_no_golden_file_is_left() -> None:
    check_folder("commands", COMMANDS)
