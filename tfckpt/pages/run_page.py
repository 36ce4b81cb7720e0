"""The page of a run: its checkpoints on a line of steps, their metrics, what is kept and why."""

from __future__ import annotations

import datetime
import itertools
import math
import os
import re
import statistics
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import natural, one_line, printable, size
from tfckpt.errors import SaveError
from tfckpt.pages.html import (
    Cell,
    Panel,
    Point,
    counted,
    curves,
    facts,
    number,
    render,
    table,
    tag,
    text,
)
from tfckpt.stored.commits.new_file import new_file
from tfckpt.stored.io.files import LOCAL, absolute
from tfckpt.tools.find_checkpoint import path_of
from tfckpt.tools.listing import freed_by, list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfckpt.policy import Keep
    from tfckpt.stored.commits.discovery import CheckpointInfo

_MAX_PANELS = 6
_HUES = {
    "best": "amber",
    "kept": "green",
    "committed": "blue",
    "deleted next": "grey",
    "would be deleted": "orange",
    "foreign": "violet",
    "uncommitted": "teal",
    "damaged": "red",
}
_UNSAFE = re.compile(r"[^\w.-]+")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def report_page(
    directory: str | os.PathLike[str],
    *,
    html: str | os.PathLike[str] | None = None,
    keep: Iterable[Keep | Mapping[str, Any]] = (),
    checkpoint_name: str | None = None,
    force: bool = False,
) -> str:
    """Write the HTML page of a run, as ``tfckpt report`` does; one file, which loads nothing.

    Args:
        directory: the directory of the run.
        html: the file to write; ``report-NAME.html`` in the working directory by default.
        keep: retention rules, as in a config: the page then says what they keep.
        checkpoint_name: the name of those that the rules are for, where the directory has several.
        force: whether to write over an existing file.

    Returns:
        The path of the page.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        SaveError: the file exists, or cannot be written.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> path = tfckpt.Checkpoint(model=model).save(directory + "/ckpt")
    >>> tfckpt.report_page(directory, html=directory + "/run.html").endswith("/run.html")
    True
    """
    path = path_of(directory)
    found = list_checkpoints(path, keep=keep, checkpoint_name=checkpoint_name)
    safe = _UNSAFE.sub("_", path.rstrip("/").rpartition("/")[2]).strip("._")
    target = os.fspath(html) if html is not None else f"report-{safe or 'page'}.html"
    if not force and LOCAL.exists(absolute(target)):
        message = f"{target}: already exists and is not overwritten"
        hint = "choose another name, or write over it: --force, in Python `force=True`"
        raise SaveError(message, hint=hint)
    with new_file(target, replaces=force) as output:
        output.write(run_page(path, found).encode())
    return target


def run_page(directory: str, found: Sequence[CheckpointInfo]) -> str:
    """The page of a directory, from what :func:`tfckpt.list_checkpoints` says of it."""
    saved = [_Saved(one) for one in found]
    saved.sort(key=lambda one: (one.number is None, one.number or 0, natural(one.name)))
    for before, one in itertools.pairwise(saved):
        if one.number is not None and one.time >= before.time:
            one.since = one.time - before.time
    return render(directory, _body(saved))


class _Saved:
    """A checkpoint, as the page speaks of it."""

    def __init__(self, listed: CheckpointInfo) -> None:
        self.listed, record = listed, listed.record
        self.path, self.number, self.time = listed.prefix, listed.number, listed.time
        self.name = printable(self.path.rpartition("/")[2])
        self.step, self.epoch = record.step, record.epoch
        saved = datetime.datetime.fromtimestamp(self.time, datetime.timezone.utc)
        self.when = f"{saved:%Y-%m-%d %H:%M:%S}"
        measured = record.metrics.items()
        self.metrics = {name: value for name, value in measured if math.isfinite(value)}
        self.lineage, self.run = record.lineage, record.run
        self.nbytes, self.best_by = listed.nbytes, listed.best_by
        self.deleted = bool(listed.delete)
        self.since: float | None = None
        self.goes_next = bool(listed.next) and not self.deleted
        problem = one_line(listed.problem)
        preserved = record.number in record.preserved
        self.judged = bool(listed.kept or self.deleted)
        if problem or listed.state in ("damaged", "torn"):
            self.state = "damaged"
        elif self.best_by:
            self.state = "best"
        elif self.deleted:
            self.state = "would be deleted"
        elif self.goes_next:
            self.state = "deleted next"
        else:
            self.state = "kept" if listed.kept or preserved else listed.state
        kept = ", ".join(listed.kept or ())
        self.notes = [
            *([problem] if problem else ()),
            *([f"best by {self.best_by}"] if self.best_by else ()),
            *(["no rule keeps it: would be deleted"] if self.best_by and self.deleted else ()),
            *(["has NaN or infinite weights"] if record.finite is False else ()),
            *([f"kept: {kept}"] if kept else ["kept permanently"] if preserved else ()),
            *(["the next save deletes it"] if self.goes_next else ()),
        ]

    @property
    def at(self) -> str:
        """Its step and epoch, as the end of a name."""
        known = [f"step {self.step:,}"] if self.step is not None else []
        known += [f"epoch {self.epoch:,}"] if self.epoch is not None else []
        return f" ({', '.join(known)})" if known else ""


def _body(saved: Sequence[_Saved]) -> Iterator[str]:
    if damaged := sum(one.state == "damaged" for one in saved):
        verb = "is" if damaged == 1 else "are"
        words = f"{counted(damaged, 'checkpoint')} {verb} damaged"
        yield f'<p class="verdict red">{words}</p>'
    numbered = [one for one in saved if one.number is not None]
    yield facts(_facts(saved, numbered))
    yield from _curves(numbered)
    yield "<h2>Checkpoints</h2>"
    if not any(one.judged for one in saved):
        yield (
            '<p class="quiet">With <code>--keep latest=3</code> or <code>--config FILE</code>, '
            "this page says which of them the rules keep, and which the next save deletes.</p>"
        )
    best = [one.best_by for one in saved if one.best_by]
    metrics = list(dict.fromkeys([*best, *(name for one in saved for name in one.metrics)]))[:8]
    numbers = dict.fromkeys(["step", "epoch", *metrics, "size"], True)
    heads = {"state": False, "notes": False, **numbers, "saved (UTC)": False}
    shown = [*reversed(numbered), *saved[len(numbered) :]]
    yield from table([(one.name, _cells(one, metrics)) for one in shown], heads, "checkpoints")


def _facts(saved: Sequence[_Saved], numbered: Sequence[_Saved]) -> Iterator[tuple[str, str]]:
    if numbered:
        yield "newest", f"{numbered[-1].name}{numbered[-1].at}"
        yield "saved", f"{numbered[-1].when} UTC"
    for one in saved:
        if one.best_by:
            value = number(one.metrics.get(one.best_by), 6)
            yield "best", f"{one.name}{one.at}: {one.best_by} {value}"
    if numbered and (restored := numbered[-1].lineage):
        sources = [f"{one.path} by policy {one.policy}" for one in restored[-1].sources]
        yield "restored from", ", ".join(sources)
    yield "checkpoints", f"{len(saved):,}"
    yield "size of all", size(sum(one.nbytes for one in saved))
    times = [one.since for one in saved if one.since is not None]
    if times:
        yield "median time between saves", duration(statistics.median(times))
    deleted = [one for one in saved if one.deleted]
    if deleted:
        total = size(freed_by((one.listed for one in saved), {one.path for one in deleted}))
        yield "kept by no rule", f"{counted(len(deleted), 'checkpoint')} ({total})"
    going = [one.name for one in saved if one.goes_next]
    yield (
        "the next save deletes",
        ", ".join(going[:3]) + (f" and {len(going) - 3} more" if going[3:] else ""),
    )


def duration(seconds: float) -> str:
    """A time span in a unit of which it has at least two.

    >>> duration(0.4), duration(59), duration(5400), duration(200000)
    ('0.4 s', '59 s', '90 min', '2.3 d')
    """
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}" if unit != "d" else f"{seconds / length:.2g} d"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1g} s"


def _curves(saved: Sequence[_Saved]) -> Iterator[str]:
    if len(saved) < 2:
        return
    steps = [one.step for one in saved if one.step is not None]
    by_step = len(steps) == len(saved) and len({*steps}) > 1
    places = steps if by_step else [one.number or 0 for one in saved]
    points = [
        Point(one.name, x, one.state.replace(" ", "-"), "\n".join(_tip(one)))
        for one, x in zip(saved, places, strict=True)
    ]
    runs = [
        x
        for x, before, one in zip(places[1:], saved, saved[1:], strict=False)
        if one.run is not None and one.run != before.run
    ]
    yield f"<h2>Over the {'steps' if by_step else 'saves'}</h2>"
    yield curves(points, list(_panels(saved)), runs, "step" if by_step else "number")
    yield (
        '<p class="quiet">★ best · ● kept by a rule · ○ complete · dashed: deleted next · '
        "× damaged. A click on one leads to its row.</p>"
    )


def _tip(one: _Saved) -> Iterator[str]:
    yield f"{one.name}{one.at}"
    yield f"{one.when} UTC"
    for name, value in one.metrics.items():
        yield f"{name} {number(value, 6)}"
    since = f", {duration(one.since)} after the one before" if one.since is not None else ""
    yield f"{size(one.nbytes)}{since}"
    yield from one.notes
    if one.deleted and not one.best_by:
        yield "no rule keeps it"


def _panels(saved: Sequence[_Saved]) -> Iterator[Panel]:
    """Metrics that belong together, ``loss`` and ``val_loss``, are in one; then sizes and times."""
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for one in saved for name in one.metrics):
        families.setdefault(name.removeprefix("val_"), []).append(name)
    panels = sorted(families.items(), key=lambda item: "loss" not in item[0])
    for family, names in panels[:_MAX_PANELS]:
        series = {name: [one.metrics.get(name) for one in saved] for name in sorted(names, key=len)}
        yield Panel(family, series)
    times = [one.since for one in saved]
    longest = max((time for time in times if time is not None), default=0)
    if longest >= 1:
        length, unit = next((u for u in _UNITS if longest >= 2 * u[0]), (1, "s"))
        values = [None if time is None else time / length for time in times]
        yield Panel(f"time between saves ({unit})", {"": values}, bars=True)
    sizes = [float(one.nbytes) for one in saved]
    if max(sizes) > 1.05 * min(sizes):
        yield Panel("size", {"": sizes}, bars=True, unit=lambda nbytes: size(round(nbytes)))


def _cells(one: _Saved, metrics: Sequence[str]) -> list[Cell]:
    counts = [Cell("" if n is None else f"{n:,}", n) for n in (one.step, one.epoch)]
    measured = [one.metrics.get(name) for name in metrics]
    return [
        tag(one.state, _HUES[one.state]),
        Cell(text("; ".join(one.notes))),
        *counts,
        *(Cell(number(value, 4), value) for value in measured),
        Cell(size(one.nbytes), one.nbytes),
        Cell(f"<span>{one.when}</span>"),
    ]
