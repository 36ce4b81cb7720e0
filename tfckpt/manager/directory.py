"""The checkpoints of one directory: found by the directory itself, deleted record first.

TensorFlow's ``checkpoint`` state file is written for TensorFlow's tools and read for nothing but
times: a damaged one costs nothing, and one that points elsewhere is not followed.
"""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

from absl import logging

from tfckpt.errors import CheckpointError
from tfckpt.stored import commit, discover, state_file
from tfckpt.stored.checkpoint import open_checkpoint
from tfckpt.stored.files import LOCAL

STATE_FILE = "checkpoint"


@dataclasses.dataclass(frozen=True)
class Directory:
    """A directory, and the name that its checkpoints begin with."""

    path: str
    checkpoint_name: str

    def checkpoints(self) -> list[discover.Candidate]:
        """Oldest first."""
        return discover.candidates(self.path, self.checkpoint_name)[::-1]

    def restorable(self) -> list[tuple[str, str]]:
        """Prefixes in the order in which to try them, each with what speaks against it.

        The newest first, but last one that tfckpt wrote and never committed: the process ended
        while it was being saved, and the one before is what was acknowledged.
        """
        newest_first = self.checkpoints()[::-1]
        committed = (one.number for one in newest_first if one.kind is discover.Kind.COMMITTED)
        acknowledged = next(committed, None)
        sound, cut_short = [], []
        for one in newest_first:
            if acknowledged is not None and one.number > acknowledged and _cut_short(one.prefix):
                doubt = f"{one.prefix}: never committed, the process ended while it was being saved"
                cut_short.append((one.prefix, doubt))
            else:
                sound.append((one.prefix, ""))
        return sound + cut_short

    def state(self) -> state_file.CheckpointState | None:
        """What the state file says, None where there is none or it is damaged."""
        try:
            return state_file.read_state(self._file(STATE_FILE))
        except CheckpointError as error:
            logging.warning("%s; it is written anew with the next save", error)
            return None

    def created(self, prefix: str) -> float | None:
        """Unix time of a checkpoint, None where no record tells it."""
        try:
            record = commit.read(prefix)
        except CheckpointError:
            return None
        return datetime.datetime.fromisoformat(record.created).timestamp() if record else None

    def write_state(self, times: dict[str, float], last_preserved: float) -> None:
        """Tell TensorFlow's tools which checkpoints there are, the newest last.

        One that lost its index is none to them: `latest_checkpoint` would answer None for all.
        """
        whole = {path: time for path, time in times.items() if LOCAL.exists(f"{path}.index")}
        names = [Path(path).name for path in whole]
        state = state_file.CheckpointState(
            names[-1], tuple(names), tuple(whole.values()), last_preserved
        )
        LOCAL.write_atomic(self._file(STATE_FILE), state_file.render(state).encode())

    def delete(self, prefix: str) -> None:
        """Delete a checkpoint of this directory: its record, then its index, then its data."""
        name = Path(prefix).name
        names = LOCAL.listdir(self.path)
        own = [n for n in names if n.startswith(f"{name}.data-") or n == f"{name}.index"]
        for file in (f"{name}{commit.SUFFIX}", *sorted(own, reverse=True)):
            if file in names:
                LOCAL.remove(self._file(file))
        logging.info("deleted %s", prefix)

    def _file(self, name: str) -> str:
        return str(Path(self.path) / name)


def _cut_short(prefix: str) -> bool:
    try:
        with open_checkpoint(prefix) as stored:
            return stored.cut_short
    except CheckpointError:
        return False  # whoever tries it will say what is wrong with it
