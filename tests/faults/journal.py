"""What a process did before it died, told by itself in a file outside the directory under attack.

A line is written with one `write` and is there when the process is killed: `try 3` before a save,
`ack 3 ckpt-3` when it has returned (`ack 3` when that was restored), `failed 3` when it has raised
and nothing of it may be left, `fault rename …` when a fault strikes.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class State:
    """What may be expected of the directory.

    Attributes:
        last: the step acknowledged last, None where none was.
        tried: those tried since then.
        ever: all that were tried, and may be there whether or not they were acknowledged.
        names: step → name of the checkpoint, for all that were acknowledged.
        faults: what was struck.
    """

    last: int | None
    tried: tuple[int, ...]
    ever: tuple[int, ...]
    names: dict[int, str]
    faults: tuple[str, ...]

    @property
    def allowed(self) -> set[int | None]:
        """What a restore may give: the last one acknowledged, or what was about to be."""
        return {self.last, *self.tried}

    def kept(self, max_to_keep: int) -> dict[int, str]:
        """What was acknowledged and no rule deletes, whether or not what was tried is there."""
        newest = sorted({*self.names, *self.ever})[-max_to_keep:]
        return {step: self.names[step] for step in newest if step in self.names}


@dataclasses.dataclass(frozen=True)
class Journal:
    """Appends to the file of one directory; several processes may, one after the other."""

    path: Path
    descriptor: int = -1

    @classmethod
    def open(cls, path: str) -> Journal:
        return cls(Path(path), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666))

    def note(self, *words: object) -> None:
        os.write(self.descriptor, (" ".join(map(str, words)) + "\n").encode())

    def next_step(self) -> int:
        """Above every step that any process tried."""
        return 1 + max((int(words[1]) for words in self._lines("try")), default=0)

    def state(self) -> State:
        last, tried = None, []
        for words in self._lines("try", "ack"):
            step = int(words[1])
            if words[0] == "ack":
                last, tried = step, []
            else:
                tried.append(step)
        names = {int(words[1]): words[2] for words in self._lines("ack") if len(words) > 2}
        faults = tuple(" ".join(words[1:]) for words in self._lines("fault"))
        failed = {words[1] for words in self._lines("failed")}
        ever = tuple(int(words[1]) for words in self._lines("try") if words[1] not in failed)
        return State(last, tuple(tried), ever, names, faults)

    def _lines(self, *kinds: str) -> list[list[str]]:
        lines = self.path.read_text(errors="replace").splitlines() if self.path.exists() else []
        return [words for words in map(str.split, lines) if words and words[0] in kinds]
