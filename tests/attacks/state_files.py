"""State files made to lead astray, by hand. Each is written into a run that has three checkpoints.

What they name lies outside, or is gone, or is a pattern, or is no state file at all. TensorFlow
deletes what a state file names, and starts afresh where it cannot read one.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _naming(*names: str, newest: str = "ckpt-3") -> Callable[[Path, Path], None]:
    """A state file in which these are the checkpoints; ``{victim}`` is the directory beside."""

    def attack(state: Path, victim: Path) -> None:
        paths = [name.format(victim=victim) for name in (*names, newest)]
        lines = [f'all_model_checkpoint_paths: "{path}"\n' for path in paths]
        lines += [f"all_model_checkpoint_timestamps: {1e9 + n}\n" for n in range(len(paths))]
        state.write_text(f'model_checkpoint_path: "{paths[-1]}"\n' + "".join(lines))

    return attack


def _content(data: bytes) -> Callable[[Path, Path], None]:
    return lambda state, victim: _ignore(state.write_bytes(data))


def _ignore(_: object) -> None:
    return None


def _absent(state: Path, victim: Path) -> None:
    state.unlink()


def _directory(state: Path, victim: Path) -> None:
    state.unlink()
    state.mkdir()
    (state / "ckpt-9.index").write_bytes(b"")


def _fifo(state: Path, victim: Path) -> None:
    state.unlink()
    os.mkfifo(state)


def _link(state: Path, victim: Path) -> None:
    state.unlink()
    state.symlink_to(victim / "checkpoint")


def _link_to_nothing(state: Path, victim: Path) -> None:
    state.unlink()
    state.symlink_to(victim / "new")


def _loop(state: Path, victim: Path) -> None:
    state.unlink()
    state.symlink_to(state)


def _device(state: Path, victim: Path) -> None:
    state.unlink()
    state.symlink_to("/dev/zero")


_SOUND = b'model_checkpoint_path: "ckpt-3"\nall_model_checkpoint_paths: "ckpt-3"\n'

ATTACKS: dict[str, Callable[[Path, Path], None]] = {
    "one level up": _naming("../victim/ckpt-1", "../victim/ckpt-3"),
    "up and down again": _naming("../run/../victim/ckpt-1", "./ckpt-1", "x/../ckpt-2"),
    "absolute": _naming("{victim}/ckpt-1", "{victim}/ckpt-3"),
    "the newest is outside": _naming("ckpt-1", newest="{victim}/ckpt-3"),
    "star": _naming("*", "../victim/*", "{victim}/ckpt*", newest="*"),
    "question mark": _naming("ckpt-?", "../victim/ckpt-?", newest="ckpt-?"),
    "brackets": _naming("ckpt-[0-9]", "../victim/ckpt-[0-9]", newest="ckpt-[3]"),
    "deleted files": _naming("ckpt-0", "ckpt-77", "ckpt-78", newest="ckpt-78"),
    "only deleted files": _naming(newest="ckpt-99"),
    "another name": _naming("model-1", "model-2", newest="model-2"),
    "huge number": _naming(newest=f"ckpt-{10**30}"),
    "the largest number": _naming(newest=f"ckpt-{2**63 - 1}"),
    "every path twice": _naming("ckpt-1", "ckpt-1", "ckpt-3", "ckpt-3"),
    "times in the future": _content(
        _SOUND + b"all_model_checkpoint_timestamps: 1e300\nlast_preserved_timestamp: 1e300\n"
    ),
    "times that are none": _content(
        _SOUND + b"all_model_checkpoint_timestamps: nan\nlast_preserved_timestamp: -inf\n"
    ),
    "a newline in a path": _content(b'model_checkpoint_path: "a\\nb"\n'),
    "a zero byte in a path": _content(b'model_checkpoint_path: "ckpt-3\\000"\n'),
    "surrogates": _content(b'model_checkpoint_path: "\\355\\240\\200"\n'),
    "empty": _content(b""),
    "one line feed": _content(b"\n"),
    "binary": _content(random.Random(1).randbytes(4096)),
    "zeros": _content(bytes(4096)),
    "twenty megabytes": _content(_SOUND + b'all_model_checkpoint_paths: "ckpt-1"\n' * 500_000),
    "one long string": _content(b'model_checkpoint_path: "' + b"a" * 10_000_000 + b'"'),
    "absent": _absent,
    "a directory": _directory,
    "a FIFO": _fifo,
    "a link outside": _link,
    "a link to nothing": _link_to_nothing,
    "a link to itself": _loop,
    "a device": _device,
}
