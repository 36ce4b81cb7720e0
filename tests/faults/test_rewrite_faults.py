"""A rewrite or a conversion of which any one call to the file system fails leaves nothing of it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.command_line import run

from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.io.files import LocalFiles, LocalOutput

if TYPE_CHECKING:
    from pathlib import Path

CALLS = (
    (LocalFiles, "create"),
    (LocalFiles, "write_atomic"),
    (LocalFiles, "rename"),
    (LocalFiles, "makedirs"),
    (LocalFiles, "fsync"),
    (LocalFiles, "fsync_dir"),
    (LocalOutput, "write"),
    (LocalOutput, "close"),
)


class Fault:
    """The n-th of all calls finds the disk full, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for owner, name in CALLS:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, original: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(*arguments, **keywords)

        return call


@pytest.mark.parametrize(
    "command",
    [
        ("rewrite", "out/new-1", "--shard_size", "16"),
        ("convert", "out/new.npz"),
        ("convert", "out/new.safetensors"),
        ("report", "out/new.html"),
    ],
    ids=lambda command: command[1],
)
def test_whichever_call_fails_nothing_is_left(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "run" / "ckpt-1", tmp_path / "out"
    source.parent.mkdir()
    with BundleWriter(str(source)) as writer:
        for number in range(3):
            writer.add(f"v{number}", np.full(4, number, np.float32))
        writer.finish()
    out.mkdir()
    kind, target, *flags = command
    target = str(tmp_path / target)
    words = (source.parent, "--html", target) if kind == "report" else (source, target, *flags)
    fault = Fault(monkeypatch)
    struck = 0
    for number in range(1, 100):
        fault.left = number
        ended = run(kind, *words)
        if fault.left > 0:  # so many calls there are not
            assert ended.status == 0
            break
        struck += 1
        if ended.status == 0:  # it was only the tidying up
            break
        assert ended.status == 1, ended
        assert "No space left" in ended.err
        assert not list(out.iterdir()), f"after the {number}th call"
    assert struck > 3
    if kind == "rewrite":
        assert run("verify", target).status == 0
