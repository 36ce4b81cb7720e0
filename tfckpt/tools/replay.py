"""``tfckpt.replay``: whether training between two checkpoints of a run gives the same again.

The program trains with a copy of the config, whose directory holds a copy of the first checkpoint.
It ends at the save that is that of the second one; the two are then compared as by ``diff``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.core.text import preformatted, printable
from tfckpt.errors import CheckpointNotFoundError, TfckptError, UnsupportedCheckpointError
from tfckpt.policy.config import same_directory
from tfckpt.policy.load import keys_of_config, load_config
from tfckpt.stored.commits.discovery import candidates
from tfckpt.stored.commits.record_file import parts, path_of, read_head
from tfckpt.stored.io.files import LOCAL, absolute, files_of, join, reading
from tfckpt.tools.comparison import diff
from tfckpt.training.saves import WATCHERS, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfckpt.policy import Config
    from tfckpt.stored.commits.record_file import CommitRecord
    from tfckpt.stored.io.files import Files

_CHUNK = 1 << 24
_NEVER = 1e9  # minutes, or a number of checkpoints
_COUNTER = "save_counter"  # of checkpoints, which need not have the same numbers
_PACKAGES = ("tensorflow", "keras", "tf_keras")


@dataclasses.dataclass(frozen=True)
class Replay:
    """What training again gave; of a difference, where it is.

    Attributes:
        start: the checkpoint that it began with.
        end: the checkpoint to arrive at.
        path: the first checkpoint that differs; else that of the end.
        step: of ``path``.
        compared: number of checkpoints that were saved again at the same step.
        equal: number of values of ``path`` that are equal.
        different: number of what differs in ``path``: values, generators, metrics.
        name: canonical name of the first that differs, "" if none does.
        kind: of the difference: a kind of ``tfckpt.diff``, ``generator`` or ``metric``.
        differing: number of its elements that differ.
        largest: greatest absolute difference of an element.
        warnings: what else is not as it was.
    """

    start: str
    end: str
    path: str
    step: int | None
    compared: int
    equal: int
    different: int = 0
    name: str = ""
    kind: str = ""
    differing: int | None = None
    largest: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether everything is bit-equal."""
        return not self.different

    def to_json(self) -> dict[str, Any]:
        """The document of ``tfckpt replay --json``."""
        return {"version": 1, "same": self.same, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        at = "" if self.step is None else f" (step {self.step:,})"
        again = f"trained again from {printable(self.start)}"
        lines = [f"{'bit-equal' if self.same else 'differs'}: {printable(self.path)}{at}, {again}"]
        if self.same:
            lines.append(f"  {self.equal:,} values in it; checkpoints compared: {self.compared}")
        else:
            count = "" if self.differing is None else f", {self.differing:,} differ"
            far = "" if self.largest is None else f", by at most {self.largest:.3g}"
            lines.append(f"  {printable(self.name)}: {self.kind.replace('_', ' ')}{count}{far}")
            lines.append(f"  {self.different:,} different, {self.equal:,} equal")
        return "\n".join([*lines, *(f"  warning: {printable(text)}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        return preformatted(str(self))


class ReplayEnded(BaseException):
    """Ends the program; with a reason if there is nothing to compare."""


def replay(
    config: str | os.PathLike[str] | Mapping[str, Any],
    train: Callable[[str], object],
    *,
    start: int,
    end: int,
) -> Replay:
    """Train again between two checkpoints of a run, and compare; the run's directory stays as is.

    It begins with a copy of the first checkpoint in a temporary directory, saves when the run did,
    and ends at the second. Each checkpoint that the run still has in between is compared, too, so
    that the first difference is named.

    Args:
        config: of the run: a YAML file, or its content as a mapping.
        train: the program. It is called with the path of a config in place of ``config``, and
            passes that to ``from_config``; what else it reads and writes is its own affair.
        start: number of the checkpoint to begin with.
        end: number of the checkpoint to arrive at.

    Raises:
        CheckpointNotFoundError: the run has no such checkpoint.
        PolicyError: the config is not valid.
        TfckptError: the program did not restore the first, or ended before the second.
        UnsupportedCheckpointError: another program wrote one of the two.

    >>> import keras, numpy as np, tempfile, tfckpt
    >>> directory = tempfile.mkdtemp()
    >>> config = {
    ...     "version": 1,
    ...     "manager": {"directory": directory, "save": {"every_epochs": 1}},
    ...     "restore": {"directory": directory, "if_none": "initialize"},
    ... }
    >>> def train(config):
    ...     keras.utils.set_random_seed(1)
    ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    ...     model.compile("adam", "mse")
    ...     callback = tfckpt.from_config(config, model).callback(verbose=0)
    ...     x, y = np.ones((8, 4)), np.ones((8, 2))
    ...     model.fit(x, y, epochs=3, verbose=0, callbacks=[callback])
    >>> train(config)
    >>> tfckpt.replay(config, train, start=1, end=3).same
    True
    """
    loaded = load_config(config)
    if (manager := loaded.manager) is None:
        raise TfckptError("the config has no `manager` section: no run has saved by it")
    if end <= start:
        raise TfckptError(f"checkpoint {end} is not later than checkpoint {start}")
    directory, name = absolute(manager.directory), manager.checkpoint_name
    files = files_of(directory)
    saved = {one.number: one.prefix for one in candidates(directory, name, files)}
    first, last = (_head(number, saved, directory, files) for number in (start, end))
    numbers = [number for number in sorted(saved) if start < number <= end]
    heads = {n: read_head(path_of(saved[n]), saved[n], files) for n in numbers}
    between = {saved[n]: head for n, head in heads.items() if head is not None}
    steps = {head.step for head in between.values()}
    with tempfile.TemporaryDirectory(prefix="tfckpt-replay-") as scratch:
        again = join(scratch, "checkpoints")
        Path(again).mkdir()
        for number in [*_ends(saved, start, first.fit, files), start]:
            _copy(saved[number], again, files)
        file = join(scratch, "config.yaml")
        _write_config(file, keys_of_config(config), loaded, again)
        with _watched({directory: _Elsewhere(), absolute(again): _End(first, last, steps)}):
            train(file)
        made: dict[object, tuple[str, CommitRecord]] = {}
        for one in reversed(candidates(again, name)):
            head = read_head(path_of(one.prefix), one.prefix)
            if head is not None and one.number > start:
                made.setdefault(_moment(head), (one.prefix, head))
        found = _compared(between, made, saved[start], saved[end])
    if first.run != last.run:
        text = "the two checkpoints are of different runs"
        found = dataclasses.replace(found, warnings=(text, *found.warnings))
    paths = {key: getattr(found, key) for key in ("start", "end", "path")}
    given = {key: join(manager.directory, os.path.split(path)[1]) for key, path in paths.items()}
    return dataclasses.replace(found, **given)  # type: ignore[arg-type]


class _End:
    """Makes a save due where the run has saved, and ends the program at its last checkpoint."""

    def __init__(self, first: CommitRecord, last: CommitRecord, steps: set[int | None]) -> None:
        self._last = last
        self._steps = steps
        self._begun = False
        counts_on = first.fit == last.fit and (first.step or 0) < (last.step or 0)
        self._limit = (last.step if counts_on else None) or math.inf

    def restored(self) -> None:
        self._begun = True

    def is_due(self, step: int | None) -> bool:
        self._check()
        if step is not None and step > self._limit:
            raise ReplayEnded
        return step is not None and step in self._steps

    def saved(self, path: str) -> None:
        self._check()
        head = read_head(path_of(path), path)
        if head is not None and _moment(head) == _moment(self._last):
            raise ReplayEnded

    def _check(self) -> None:
        if not self._begun:
            raise ReplayEnded("it trains without restoring the checkpoint: call run.restore()")


class _Elsewhere:
    """Ends a program that works in the directory of the run."""

    def restored(self) -> None:
        raise ReplayEnded("it works in the run's own directory: pass it the config that it gets")

    def is_due(self, step: int | None) -> bool:
        del step
        self.restored()
        return False

    def saved(self, path: str) -> None:
        del path
        self.restored()


@contextlib.contextmanager
def _watched(watchers: Mapping[str, Watcher]) -> Iterator[None]:
    WATCHERS.update(watchers)
    try:
        yield
    except ReplayEnded as ended:
        if ended.args:
            raise TfckptError(f"the program cannot be replayed: {ended}") from None
    finally:
        for directory in watchers:
            del WATCHERS[directory]


def _ends(saved: Mapping[int, str], start: int, fit: int | None, files: Files) -> Iterator[int]:
    """The last checkpoint of each earlier ``fit``: the code after that sees its weights."""
    ends: dict[int, int] = {}
    for number in sorted(number for number in saved if fit and number < start):
        head = read_head(path_of(saved[number]), saved[number], files)
        if head is not None and head.fit is not None and head.fit < (fit or 0):
            ends[head.fit] = number
    yield from sorted(ends.values())


def _head(number: int, saved: Mapping[int, str], directory: str, files: Files) -> CommitRecord:
    if number not in saved:
        known = ", ".join(map(str, sorted(saved))) or "none"
        message = f"there is no checkpoint {number}; there are: {known}"
        raise CheckpointNotFoundError(message, path=directory)
    prefix = saved[number]
    if (head := read_head(path_of(prefix), prefix, files)) is None:
        message = "it has no commit record, so another program wrote it"
        raise UnsupportedCheckpointError(message, path=prefix)
    return head


def _moment(record: CommitRecord) -> tuple[object, ...]:
    """What two saves of the same moment have in common."""
    number = record.number if record.step is None else None
    return record.step, record.epoch, record.mid_epoch, record.fit, number


def _copy(prefix: str, directory: str, files: Files) -> None:
    parent = os.path.split(prefix)[0]
    for part in parts(prefix, {*files.listdir(parent)}, files):
        source = join(parent, part)
        with (
            reading(source),
            contextlib.closing(files.open_read(source)) as handle,
            Path(directory, part).open("wb") as stream,
        ):
            for offset in range(0, handle.size, _CHUNK):
                stream.write(handle.pread(offset, min(_CHUNK, handle.size - offset)))


def _write_config(file: str, keys: dict[str, Any], config: Config, directory: str) -> None:
    """The config in another directory: nothing is deleted, and no clock or signal saves."""
    import yaml

    assert config.manager is not None  # noqa: S101 (narrows the type)
    place = {"directory": directory.replace("$", "$$")}
    manager = {**keys["manager"], **place, "enable_async": False}
    for key in ("if_busy", "max_to_keep"):
        manager.pop(key, None)
    if config.manager.keep:
        manager["keep"] = [*manager["keep"], {"latest": int(_NEVER)}]
    if config.manager.save.is_due_ever:
        counted = {
            key: value
            for key, value in manager["save"].items()
            if key in ("every_steps", "every_epochs") and value is not None
        }
        manager["save"] = counted or {"every_minutes": _NEVER}
    restore = {**_own_source(keys, config), **place}
    if config.manager.checkpoint_name != "ckpt":
        restore["checkpoint_name"] = config.manager.checkpoint_name
    text = yaml.safe_dump({**keys, "manager": manager, "restore": restore}, sort_keys=False)
    LOCAL.write_atomic(file, text.encode())


def _own_source(keys: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """By which policy the run restores what it has saved itself."""
    own, written = config.manager, keys.get("restore")
    if config.restore is None or written is None or own is None:
        return {}
    listed = written.get("first_of", [written])
    for source, its in zip(config.restore.first_of, listed, strict=True):
        if source.directory is not None and same_directory(source.directory, own.directory):
            return {key: its[key] for key in ("policy",) if key in its}
    return {}


def _compared(
    between: Mapping[str, CommitRecord],
    made: Mapping[object, tuple[str, CommitRecord]],
    start: str,
    end: str,
) -> Replay:
    """Compare in the order of the run, up to the first difference."""
    compared, found = 0, None
    for prefix, old in between.items():
        if (again := made.get(_moment(old))) is None:
            continue
        path, new = again
        compared += 1
        values = diff(prefix, path, values=True)
        differences = list(_differences(values, old, new))
        first = differences[0] if differences else ("", "", None, None)
        about = prefix, old.step, compared, values.equal, len(differences), *first
        found = Replay(start, end, *about, tuple(_versions(old, new)))
        if differences:
            return found
    if found is None or found.path != end:
        raise TfckptError(
            f"the program ended, and saved nothing at the step of {end}",
            hint="it must pass the config that it is called with to from_config, and train on",
        )
    return found


_Found = tuple[str, str, int | None, float | None]


def _differences(values: Any, old: CommitRecord, new: CommitRecord) -> Iterator[_Found]:
    """Name, kind, number of elements and distance; what others are computed from comes first."""
    for one in sorted(values.differences, key=lambda one: one.entry.role is Role.METRIC):
        if one.entry.name == _COUNTER:
            continue
        names = (one.a.name, one.b.name) if one.a and one.b else ("", "")
        distance = values.distances.get(names)
        count, largest = (distance.count, distance.largest) if distance else (None, None)
        yield one.entry.name, one.kind.value, count, largest
    before, after = map(_generators, (old, new))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"the generator of {name}", "generator", None, None
    for name, number in new.metrics.items():
        other = old.metrics.get(name)
        if other is None or not (other == number or (math.isnan(other) and math.isnan(number))):
            yield name, "metric", None, None if other is None else abs(other - number)


def _generators(record: CommitRecord) -> Mapping[str, Any]:
    training = record.training
    found = (training.get("fit") or training).get("generators")
    return found if isinstance(found, dict) else {}


def _versions(old: CommitRecord, new: CommitRecord) -> Iterator[str]:
    for package in _PACKAGES:
        before, now = old.versions.get(package), new.versions.get(package)
        if before != now and before and now:
            yield f"the run had {package} {before}, and this is {now}"
