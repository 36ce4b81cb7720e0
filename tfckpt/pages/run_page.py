"""The page of a run: its checkpoints on a line of steps, their metrics, what is kept and why."""

from __future__ import annotations

import datetime
import itertools
import math
import shlex
import statistics
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfckpt.core.text import natural, one_line, printable, size
from tfckpt.pages.curves import Panel, Point, curves
from tfckpt.pages.shell import counted, facts, number, render, text, title_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.core.inventory import Restored
    from tfckpt.stored.inspection.listing import ListedCheckpoint

_MAX_PANELS = 6
# The states of a checkpoint: the color of each, and what it means.
_STATES = {
    "best": ("amber", "by the metric of the run"),
    "kept": ("green", "a rule keeps it"),
    "committed": ("blue", "complete"),
    "goes next": ("grey", "deleted after one more save"),
    "would be deleted": ("orange", "no rule keeps it"),
    "foreign": ("violet", "written by other software"),
    "uncommitted": ("teal", "by tfckpt, without its commit record"),
    "damaged": ("red", "cannot be restored"),
}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def run_page(directory: str, found: Sequence[ListedCheckpoint]) -> str:
    """The page of a directory, from what :func:`tfckpt.list_checkpoints` says of it."""
    saved = [_Saved(one) for one in found]
    saved.sort(key=lambda one: (one.number is None, one.number or 0, natural(one.name)))
    for before, one in itertools.pairwise(saved):
        if one.number is not None and one.time >= before.time:
            one.since = one.time - before.time
    return render(title_of(directory), directory, _body(saved))


class _Saved:
    """A checkpoint, as the page speaks of it."""

    def __init__(self, listed: ListedCheckpoint) -> None:
        head = listed.head
        self.path, self.number, self.time = listed.prefix, listed.number, listed.time
        self.name = printable(self.path.rpartition("/")[2])
        self.step, self.epoch = (head.step, head.epoch) if head else (None, None)
        saved = datetime.datetime.fromtimestamp(self.time, datetime.timezone.utc)
        self.when = f"{saved:%Y-%m-%d %H:%M:%S}"
        measured = head.metrics.items() if head else ()
        self.metrics = {name: value for name, value in measured if math.isfinite(value)}
        self.metadata, self.versions = (head.metadata, head.versions) if head else ({}, {})
        self.lineage: tuple[Restored, ...] = head.lineage if head else ()
        self.run = head.run_first if head else None
        self.nbytes, self.best_by = listed.nbytes, listed.best_by
        self.deleted = bool(listed.delete)
        self.since: float | None = None
        self.goes_next = bool(listed.next) and not self.deleted
        problem = one_line(listed.problem)
        preserved = bool(head and head.number in head.preserved)
        self.judged = bool(listed.kept or self.deleted)
        if problem or listed.state in ("damaged", "torn"):
            self.state = "damaged"
        elif self.best_by:
            self.state = "best"
        elif self.deleted:
            self.state = "would be deleted"
        elif self.goes_next:
            self.state = "goes next"
        else:
            self.state = "kept" if listed.kept or preserved else listed.state
        kept = ", ".join(listed.kept or ())
        self.notes = [
            *([problem] if problem else ()),
            *([f"best by {self.best_by}"] if self.best_by else ()),
            *(["no rule keeps it: would be deleted"] if self.best_by and self.deleted else ()),
            *(["has NaN or infinite weights"] if head and head.finite is False else ()),
            *([f"kept: {kept}"] if kept else ["kept permanently"] if preserved else ()),
            *(["goes with the next save"] if self.goes_next else ()),
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
            "this page says which of them the rules keep, and which goes next.</p>"
        )
    yield from _table([*reversed(numbered), *saved[len(numbered) :]])


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
        yield "between saves, median", duration(statistics.median(times))
    deleted = [one for one in saved if one.deleted]
    if deleted:
        total = size(sum(one.nbytes for one in deleted))
        yield "no rule keeps", f"{counted(len(deleted), 'checkpoint')} ({total})"
    going = [one.name for one in saved if one.goes_next]
    yield "goes next", ", ".join(going[:3]) + (f" and {len(going) - 3} more" if going[3:] else "")


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
        '<p class="quiet">★ best · ● kept by a rule · ○ complete, dashed if it goes next · '
        "× damaged. Click one, or press Enter on it, to see more.</p>"
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


class _Cell(NamedTuple):
    """A cell of the table: its HTML, and the number that it is sorted by, if it is one."""

    html: str
    order: float | None = None


def _table(saved: Sequence[_Saved]) -> Iterator[str]:
    best = [one.best_by for one in saved if one.best_by]
    metrics = list(dict.fromkeys([*best, *(name for one in saved for name in one.metrics)]))[:8]
    numbers = ["step", "epoch", *metrics, "size"]
    heads = ["state", "notes", *numbers, "saved (UTC)"]
    table = [_cells(one, metrics) for one in saved]
    filled = [any(cell.html for cell in column) for column in zip(*table, strict=True)]
    yield '<section class="values">'
    yield from _filters(saved)
    yield (
        '<div class="tools"><input type="search" autocomplete="off" '
        'aria-label="search checkpoints" placeholder="search: name, state, …">'
        '<select aria-label="sort by"></select><output aria-live="polite"></output></div>'
        '<div class="scroll" tabindex="0" role="region" aria-label="table of checkpoints">'
        '<table><thead><tr><th scope="col">name</th>'
    )
    for head in itertools.compress(heads, filled):
        kind = ' class="number"' if head in numbers else ""
        yield f'<th scope="col"{kind}>{text(head)}</th>'
    yield "</tr></thead><tbody>"
    for one, cells in zip(saved, table, strict=True):
        name = text(one.name)
        yield f'<tr id="{name}" data-state="{text(one.state)}"><th scope="row">'
        yield f'<a href="#{quote(one.name)}">{name}</a></th>'
        for head, cell in itertools.compress(zip(heads, cells, strict=True), filled):
            kind = f' class="number" data-label="{text(head)}"' if head in numbers else ""
            order = "" if cell.order is None else f' data-order="{cell.order!r}"'
            yield f"<td{kind}{order}>{cell.html}</td>"
        yield f'</tr><tr class="detail"><td colspan="{1 + sum(filled)}">'
        yield from _article(one)
        yield "</td></tr>"
    yield '</tbody></table></div><button type="button" class="more" hidden></button></section>'


def _filters(saved: Sequence[_Saved]) -> Iterator[str]:
    shown = [state for state in _STATES if any(one.state == state for one in saved)]
    if len(shown) < 2:
        return
    yield '<div class="filters" role="group" aria-label="show only">'
    for state in shown:
        hue, meaning = _STATES[state]
        sizes = [one.nbytes for one in saved if one.state == state]
        yield (
            f'<button type="button" aria-pressed="false" data-state="{state}"><i class="{hue}"></i>'
            f"<span><b>{state}</b> {len(sizes):,} · {size(sum(sizes))}</span>"
            f"<small>{meaning}</small></button>"
        )
    yield "</div>"


def _cells(one: _Saved, metrics: Sequence[str]) -> list[_Cell]:
    counts = [_Cell("" if n is None else f"{n:,}", n) for n in (one.step, one.epoch)]
    measured = [one.metrics.get(name) for name in metrics]
    return [
        _Cell(_tag(one)),
        _Cell(text("; ".join(one.notes))),
        *counts,
        *(_Cell(number(value, 4), value) for value in measured),
        _Cell(size(one.nbytes), one.nbytes),
        _Cell(" ".join(f"<span>{part}</span>" for part in one.when.split())),
    ]


def _tag(one: _Saved) -> str:
    """The state on its color."""
    return f'<b class="{_STATES[one.state][0]}">{one.state}</b>'


def _article(one: _Saved) -> Iterator[str]:
    """What is known about a checkpoint."""
    yield f"<article><h3>{text(one.name)} {_tag(one)}</h3>"
    yield from (f"<p>{text(note)}</p>" for note in one.notes)
    programs = {"tensorflow": "TensorFlow", "keras": "Keras"}
    yield facts(
        [
            ("saved", f"{one.when} UTC"),
            ("step", "" if one.step is None else f"{one.step:,}"),
            ("epoch", "" if one.epoch is None else f"{one.epoch:,}"),
            ("size", size(one.nbytes)),
            *((name, number(value, 6)) for name, value in one.metrics.items()),
            *((n, v if isinstance(v, str) else repr(v)) for n, v in one.metadata.items()),
            *((programs.get(name, name), version) for name, version in one.versions.items()),
        ]
    )
    yield from _lineage(one.lineage)
    yield '<p class="quiet">All of its values:</p>'
    command = f"tfckpt inspect {shlex.quote(one.path)} --values"
    yield f'<code class="copied command">{text(command)}</code></article>'


def _lineage(restores: Sequence[Restored]) -> Iterator[str]:
    """Which checkpoints the values come from, by which policies."""
    if not restores:
        return
    yield '<h3>Where the values come from</h3><ol class="list">'
    for restored in restores:
        for source in restored.sources:
            averaged = "".join(
                f"<br>{number(share.weight)} of <code>{text(share.path)}</code>"
                for share in source.average
            )
            yield (
                f"<li><code>{text(source.path)}</code> by policy <code>"
                f"{text(source.policy)}</code> <small>(SHA-256 of the checkpoint "
                f"{text(source.sha256[:12])}…, of the policy "
                f"{text(source.policy_sha256[:12])}…)</small>{averaged}</li>"
            )
        counts = ", ".join(f"{n:,} {word}" for word, n in restored.counts.items())
        yield f'<li class="quiet">{text(counts)}</li>' if counts else ""
    yield "</ol>"
