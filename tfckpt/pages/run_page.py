"""The page of a run: its checkpoints on a line of steps, their metrics, what is kept and why."""

from __future__ import annotations

import datetime
import itertools
import math
import shlex
import statistics
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import natural, one_line, printable, size
from tfckpt.pages.checkpoint_page import lineage, moment, versions
from tfckpt.pages.shell import Page, counted, data, facts, number, tag, text, title_of, verdict
from tfckpt.pages.value_table import Column, Filter, ValueRow, ValueTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MAX_PANELS = 6
_STATES = (
    Filter("best", "amber", "by the metric of the run"),
    Filter("kept", "green", "a rule keeps it"),
    Filter("committed", "blue", "complete"),
    Filter("goes next", "grey", "deleted after one more save"),
    Filter("would be deleted", "orange", "no rule keeps it"),
    Filter("foreign", "violet", "written by other software"),
    Filter("uncommitted", "teal", "by tfckpt, without its commit record"),
    Filter("damaged", "red", "cannot be restored"),
)
_HUES = {one.tag: one.hue for one in _STATES}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def run_page(document: Mapping[str, Any]) -> Page:
    """The page for a document of ``list``."""
    directory = str(document["directory"])
    saved = [_Saved(one) for one in document["checkpoints"]]
    saved.sort(key=lambda one: (one.number is None, one.number or 0, natural(one.name)))
    for before, one in itertools.pairwise(saved):
        if one.number is not None and one.time >= before.time:
            one.since = one.time - before.time
    return Page("Run", title_of(directory), list(_body(saved)), directory)


class _Saved:
    """One of ``checkpoints`` in the document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.path = str(document["path"])
        self.name = printable(self.path.rpartition("/")[2])
        self.number = None if document["number"] is None else int(document["number"])
        self.step = None if document["step"] is None else int(document["step"])
        self.epoch = None if document["epoch"] is None else int(document["epoch"])
        self.when = moment(document["time"])
        self.time = datetime.datetime.fromisoformat(str(document["time"])).timestamp()
        self.metrics = {
            str(name): float(value)
            for name, value in document["metrics"].items()
            if value is not None and math.isfinite(value)
        }
        self.metadata: Mapping[str, Any] = document["metadata"]
        self.nbytes = int(document["nbytes"])
        self.state = str(document["state"])
        self.problem = one_line(str(document["problem"] or ""))
        self.kept = [str(why) for why in document["kept"] or ()]
        self.deleted = bool(document["delete"])
        self.goes_next = bool(document.get("next")) and not self.deleted
        self.best_by = str(document.get("best_by") or "")
        self.finite = document["finite"]
        self.preserved = bool(document.get("preserved"))
        self.versions: Mapping[str, Any] = document.get("versions") or {}
        self.lineage: Sequence[Mapping[str, Any]] = document.get("lineage") or ()
        self.run = document.get("run")
        self.since: float | None = None

    @property
    def tag(self) -> str:
        if self.problem or self.state in ("damaged", "torn"):
            return "damaged"
        if self.best_by:
            return "best"
        if self.deleted:
            return "would be deleted"
        if self.goes_next:
            return "goes next"
        if self.kept or self.preserved:
            return "kept"
        return self.state

    @property
    def notes(self) -> list[str]:
        """What is to be said of it, the most important first."""
        notes = [self.problem] if self.problem else []
        notes += [f"best by {self.best_by}"] if self.best_by else []
        notes += ["no rule keeps it: would be deleted"] if self.best_by and self.deleted else []
        notes += ["has NaN or infinite weights"] if self.finite is False else []
        notes += [f"kept: {', '.join(self.kept)}"] if self.kept else []
        notes += ["kept permanently"] if self.preserved and not self.kept else []
        notes += ["goes with the next save"] if self.goes_next else []
        return notes


def _body(saved: Sequence[_Saved]) -> Iterator[str]:
    damaged = [one for one in saved if one.tag == "damaged"]
    if damaged:
        verb = "is" if len(damaged) == 1 else "are"
        yield verdict(f"{counted(len(damaged), 'checkpoint')} {verb} damaged", "red")
    yield facts(_facts(saved))
    yield from _curves([one for one in saved if one.number is not None])
    yield "<h2>Checkpoints</h2>"
    if not any(one.kept or one.deleted for one in saved):
        yield (
            '<p class="quiet">With <code>--keep latest=3</code> or <code>--config FILE</code>, '
            "this page says which of them the rules keep, and which goes next.</p>"
        )
    yield from _table(saved)
    yield '<section class="details" aria-live="polite">'
    for one in saved:
        yield from _article(one)
    yield "</section>"


def _facts(saved: Sequence[_Saved]) -> Iterator[tuple[str, str]]:
    numbered = [one for one in saved if one.number is not None]
    if numbered:
        yield "newest", f"{numbered[-1].name}{_at(numbered[-1])}"
        yield "saved", numbered[-1].when
    for one in saved:
        if one.best_by:
            value = number(one.metrics.get(one.best_by), 6)
            yield "best", f"{one.name}{_at(one)}: {one.best_by} {value}"
    if numbered and (restored := numbered[-1].lineage):
        sources = [f"{one['path']} by policy {one['policy']}" for one in restored[-1]["sources"]]
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


def _at(one: _Saved) -> str:
    known = [f"step {one.step:,}"] if one.step is not None else []
    known += [f"epoch {one.epoch:,}"] if one.epoch is not None else []
    return f" ({', '.join(known)})" if known else ""


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
    by_step = all(one.step is not None for one in saved) and len({one.step for one in saved}) > 1
    points = [
        {
            "name": one.name,
            "x": one.step if by_step else one.number,
            "flags": [one.tag.replace(" ", "-")],
            "text": "\n".join([f"{one.name}{_at(one)}", *_tip(one)]),
        }
        for one in saved
    ]
    runs = [
        {"x": point["x"], "label": "new run"}
        for point, before, one in zip(points[1:], saved, saved[1:], strict=False)
        if one.run is not None and one.run != before.run
    ]
    shown = {
        "points": points,
        "panels": list(_panels(saved)),
        "runs": runs,
        "axis": "step" if by_step else "number",
        "label": "checkpoints, with their metrics; arrow keys go from one to the next",
    }
    yield (
        f'<section class="drawn"><h2>Over the {"steps" if by_step else "saves"}</h2>'
        '<figure class="curves" '
        f'data-run="{data(shown)}"><div><svg></svg></div><p class="tip" hidden></p><figcaption '
        'class="quiet">★ best · ● kept by a rule · ○ complete, dashed if it goes next · × damaged. '
        "Click one, or press Enter on it, to see more.</figcaption></figure></section>"
    )


def _tip(one: _Saved) -> Iterator[str]:
    yield one.when
    for name, value in one.metrics.items():
        yield f"{name} {number(value, 6)}"
    since = f", {duration(one.since)} after the one before" if one.since is not None else ""
    yield f"{size(one.nbytes)}{since}"
    yield from one.notes
    if one.deleted:
        yield "no rule keeps it"


def _panels(saved: Sequence[_Saved]) -> Iterator[dict[str, Any]]:
    """Metrics that belong together, ``loss`` and ``val_loss``, are in one; then sizes and times."""
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for one in saved for name in one.metrics):
        families.setdefault(name.removeprefix("val_"), []).append(name)
    panels = sorted(families.items(), key=lambda item: "loss" not in item[0])
    for family, names in panels[:_MAX_PANELS]:
        yield {
            "name": printable(family),
            "series": [
                {"name": printable(name), "values": [one.metrics.get(name) for one in saved]}
                for name in sorted(names, key=len)
            ],
        }
    times = [one.since for one in saved]
    known = [time for time in times if time is not None]
    if known and max(known) >= 1:
        length, unit = next(
            ((length, unit) for length, unit in _UNITS if max(known) >= 2 * length), (1, "s")
        )
        values = [None if time is None else time / length for time in times]
        yield {
            "name": f"time between saves ({unit})",
            "bars": True,
            "series": [{"name": "", "values": values}],
        }
    sizes = [one.nbytes for one in saved]
    if max(sizes) > 1.05 * min(sizes):
        yield {
            "name": "size",
            "bars": True,
            "units": True,
            "series": [{"name": "", "values": sizes}],
        }


def _article(one: _Saved) -> Iterator[str]:
    name = text(one.name)
    yield f'<article data-name="{name}"><h3>{name} {tag(one.tag, _HUES[one.tag])}</h3>'
    yield from (f"<p>{text(note)}</p>" for note in one.notes)
    pairs = [
        ("saved", one.when),
        ("step", "" if one.step is None else f"{one.step:,}"),
        ("epoch", "" if one.epoch is None else f"{one.epoch:,}"),
        ("size", size(one.nbytes)),
        *((name, number(value, 6)) for name, value in one.metrics.items()),
        *((str(n), v if isinstance(v, str) else repr(v)) for n, v in one.metadata.items()),
        *versions(one.versions),
    ]
    yield facts(pairs)
    yield from lineage(one.lineage)
    yield '<p class="quiet">The page of this checkpoint, with all of its values:</p>'
    command = f"tfckpt report {shlex.quote(one.path)} --values --open"
    yield f'<code class="copied command">{text(command)}</code></article>'


def _table(saved: Sequence[_Saved]) -> Iterator[str]:
    best = [one.best_by for one in saved if one.best_by]
    metrics = list(dict.fromkeys([*best, *(name for one in saved for name in one.metrics)]))[:8]
    columns = [
        Column("state"),
        Column("notes"),
        Column("step", "number"),
        Column("epoch", "number"),
        *(Column(name, "number") for name in metrics),
        Column("size", "bytes"),
        Column("saved (UTC)", "moment"),
    ]
    cells = [_cells(one, metrics) for one in saved]
    filled = [any(column) for column in zip(*cells, strict=True)]
    rows = [
        ValueRow(
            one.name,
            list(itertools.compress(shown, filled)),
            one.nbytes,
            [one.tag],
            _HUES[one.tag],
        )
        for one, shown in zip(saved, cells, strict=True)
    ]
    columns = list(itertools.compress(columns, filled))
    yield from ValueTable(columns, rows, [_STATES], what="checkpoint", sort="-name").render()


def _cells(one: _Saved, metrics: Sequence[str]) -> list[str]:
    return [
        tag(one.tag, _HUES[one.tag]),
        text("; ".join(one.notes)),
        "" if one.step is None else f"{one.step:,}",
        "" if one.epoch is None else f"{one.epoch:,}",
        *(number(one.metrics.get(name), 4) for name in metrics),
        size(one.nbytes),
        " ".join(f"<span>{part}</span>" for part in one.when.split()[:2]),
    ]
