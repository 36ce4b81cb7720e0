"""The first save and the first restore of a process, which are all that a short run has.

Each is measured in a process of its own, which has imported everything and built the objects, and
has saved and restored nothing: names are found, and memory is used for the first time.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants import TensorFlow, Tfckpt
from benchmarks.measure import Result, Settings, clock, in_child, in_turns
from benchmarks.saving import CASES

if TYPE_CHECKING:
    from benchmarks.subjects import Subject

ROUNDS = {"small10k": 4, "resnet50": 3, "transformer": 3}
SAVE, RESTORE = "first save ms", "first restore ms"


def run(settings: Settings) -> list[Result]:
    return [one for name in ROUNDS for one in _case(name, settings)]


def _case(name: str, settings: Settings) -> list[Result]:
    turns = {kind.name: partial(_turn, name, kind, settings) for kind in (TensorFlow, Tfckpt)}
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS[name]))
    return in_turns("first", f"{CASES[name].title}, disk", turns, rounds, settings)


def _turn(name: str, kind: type[TensorFlow], settings: Settings) -> dict[str, float]:
    save, prefix = in_child(_saved, name, kind, settings)
    settings.resolve()
    restore = in_child(_restored, name, kind, prefix, settings)
    shutil.rmtree(Path(prefix).parent)
    return {SAVE: save, RESTORE: restore}


def _saved(name: str, kind: type[TensorFlow], settings: Settings) -> tuple[float, str]:
    contestant = kind(_subject(name, settings), settings.disk)
    return clock(contestant.save), contestant.prefix


def _restored(name: str, kind: type[TensorFlow], prefix: str, settings: Settings) -> float:
    checkpoint = kind.kind(**_subject(name, settings).objects)
    return clock(partial(checkpoint.read, prefix))


def _subject(name: str, settings: Settings) -> Subject:
    case = CASES[name]
    return (case.tiny if settings.quick else case.build)()
