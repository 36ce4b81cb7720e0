"""Golden files: compared whole, or written anew by ``python -m golden``."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
WRITES = "TFCKPT_GOLDEN"  # the kinds of files that `python -m golden` writes


def check(name: str, lines: Iterable[str]) -> None:
    """Compare the file of that name, ``names/sequential``, with these lines; or write it."""
    file, found = _file(name), list(lines)
    if _writes(name):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        return
    known = _known(file)
    if found != known:
        diff = difflib.unified_diff(known, found, f"golden/{name}.txt", "today", n=2, lineterm="")
        _fail(name, diff)


def check_digests(name: str, lines: Iterable[str]) -> None:
    """The same for what may not stand in the project: digests of the lines, a few in a line."""
    found = list(lines)
    digests, known = [digest(line) for line in found], " ".join(_known(_file(name))).split()
    if _writes(name):
        check(name, (" ".join(digests[at : at + 10]) for at in range(0, len(digests), 10)))
    elif digests != known:
        plain = dict(zip(digests, found, strict=True))
        new = [f"+{line}" for each, line in plain.items() if each not in known]
        gone = len({*known} - plain.keys())
        _fail(name, [*new, f"{len(new)} new lines; {gone} of {len(known)} are no longer met"])


def digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:8]


def files(folder: str) -> set[str]:
    """The names of the golden files in a folder."""
    return {file.stem for file in (ROOT / folder).glob("*.txt")}


def check_folder(folder: str, names: Iterable[str]) -> None:
    """No file is left of what is no longer asked for."""
    stale = files(folder) - {*names}
    if _writes(folder):
        for name in stale:
            _file(f"{folder}/{name}").unlink()
        return
    assert not stale, f"nothing checks golden/{folder}/{{{','.join(sorted(stale))}}}.txt"


def _writes(name: str) -> bool:
    return name.partition("/")[0] in os.environ.get(WRITES, "").split()


def _file(name: str) -> Path:
    return ROOT / f"{name}.txt"


def _known(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _fail(name: str, shown: Iterable[str]) -> None:
    command = f"in tests/: python -m golden {name.partition('/')[0]}"
    text = "\n".join(shown)
    pytest.fail(f"golden/{name}.txt is another one ({command} writes it)\n{text}", pytrace=False)
