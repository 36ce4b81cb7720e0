"""The page of a checkpoint: what it is, where it comes from, how large each value is."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import one_line, size
from tfckpt.pages.shell import (
    Page,
    bars,
    counted,
    data,
    facts,
    number,
    percent,
    tag,
    text,
    title_of,
    verdict,
)
from tfckpt.pages.value_table import Column, Filter, ValueRow, ValueTable
from tfckpt.stored.formats.checkpoint import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROLES = (
    Filter("weight", "blue", "weights of the model"),
    Filter("slot", "violet", "state of an optimizer for each weight"),
    Filter("iterations", "grey", "step count of an optimizer"),
    Filter("hyperparameter", "grey", "learning rate and similar settings"),
    Filter("metric", "green", "state of metrics"),
    Filter("seed", "amber", "state of random generators"),
    Filter("state", "teal", "counters and other variables"),
    Filter("vocabulary", "teal", "lookup tables of preprocessing layers"),
    Filter("iterator", "orange", "position in a dataset"),
    Filter("object", "orange", "not a tensor"),
)
OPTIMIZER = ("slot", "iterations", "hyperparameter")
_HUES = {one.tag: one.hue for one in ROLES}
PARTS = {"weights": ["weight"], "optimizer": list(OPTIMIZER)}
_LIST = [Column("role"), Column("type", "shape"), Column("size", "bytes")]
_NONFINITE = Column("NaN or infinite", "number", "how many elements are not finite")
_STATISTICS = [
    Column("histogram", "picture", "twelve equal bins from min to max"),
    Column("min", "number"),
    Column("max", "number"),
    Column("mean", "number"),
    Column("std", "number", "standard deviation"),
    Column("zeros", "number", "share of zeros"),
    _NONFINITE,
]


def checkpoint_page(document: Mapping[str, Any]) -> Page:
    """The page for a document of ``inspect``."""
    path = str(document["prefix"])
    return Page("Checkpoint", title_of(path), list(_body(document)), path)


def _body(document: Mapping[str, Any]) -> Iterator[str]:
    values = document["values"]
    statistics = document.get("statistics")
    if missing := [str(path) for path in document["missing_shards"]]:
        verb = "is" if len(missing) == 1 else "are"
        yield verdict(
            f"{counted(len(missing), 'file')} {verb} missing: {', '.join(missing)}", "red"
        )
    if document.get("finite") is False:
        yield verdict("not all weights are finite", "red")
    yield facts(_facts(document))
    yield from lineage(document["lineage"])
    columns = _columns(statistics)
    rows = [_row(value, statistics, columns) for value in values]
    yield from sizes(rows, "Sizes", PARTS)
    yield "<h2>Values</h2>"
    yield from ValueTable(columns, rows, [ROLES]).render()


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "saved", moment(document.get("time"))
    for word in ("step", "epoch"):
        if document[word] is not None:
            yield word, f"{int(document[word]):,}"
    for name, value in document["metrics"].items():
        yield str(name), number(value, 6)
    yield "size", size(sum(nbytes_of(value) for value in document["values"]))
    yield "values", f"{len(document['values']):,}"
    yield "format", KINDS.get(document["kind"], str(document["kind"]))
    yield from versions(document.get("versions") or {})
    for name, value in document["metadata"].items():
        yield str(name), value if isinstance(value, str) else repr(value)


def versions(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The programs that wrote a checkpoint."""
    words = {"tensorflow": "TensorFlow", "keras": "Keras", "tf_keras": "tf_keras"}
    for name, version in known.items():
        yield words.get(str(name), str(name)), str(version)


def moment(iso: object) -> str:
    """A time, to the second and in UTC; ``""`` for None.

    >>> moment("2025-01-31T12:00:00.123456+00:00")
    '2025-01-31 12:00:00 UTC'
    """
    if iso is None:
        return ""
    when = datetime.datetime.fromisoformat(str(iso)).astimezone(datetime.timezone.utc)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def lineage(restores: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which checkpoints the values come from, by which policies."""
    if not restores:
        return
    yield '<h2>Where the values come from</h2><ol class="list">'
    for restored in restores:
        for source in restored["sources"]:
            averaged = "".join(
                f"<br>{number(share['weight'])} of <code>{text(share['path'])}</code>"
                for share in source["average"]
            )
            yield (
                f"<li><code>{text(source['path'])}</code> by policy <code>"
                f"{text(source['policy'])}</code> <small>(SHA-256 of the checkpoint "
                f"{text(source['sha256'])[:12]}…, of the policy "
                f"{text(source['policy_sha256'])[:12]}…)</small>{averaged}</li>"
            )
        counts = ", ".join(f"{int(n):,} {word}" for word, n in restored["counts"].items())
        yield f'<li class="quiet">{text(counts)}</li>' if counts else ""
    yield "</ol>"


def sizes(
    rows: Sequence[ValueRow],
    title: str,
    parts: Mapping[str, Sequence[str]] | None = None,
    legend: str = "",
) -> Iterator[str]:
    """The figure in which a script draws the treemap of the table that follows."""
    if any(row.nbytes for row in rows):
        yield (
            f'<section class="drawn"><h2>{text(title)}</h2><figure class="sizes" '
            f'data-parts="{data(parts or {})}">'
            f'<nav aria-label="where in the names"></nav>{legend}<div class="map" role="group" '
            'aria-label="treemap: the area of a box is the size of its values"></div>'
            "<output>Click a box to zoom in. With the keyboard: arrows, Enter, Escape.</output>"
            "</figure></section>"
        )


def _columns(statistics: Mapping[str, Any] | None) -> list[Column]:
    if statistics is None:
        return list(_LIST)
    known = [found for found in statistics.values() if found is not None and "error" not in found]
    all_finite = not any(int(found["nonfinite"]) for found in known)
    shown = [one for one in _STATISTICS if not (all_finite and one is _NONFINITE)]
    return [*_LIST, *shown]


def _row(
    value: Mapping[str, Any], statistics: Mapping[str, Any] | None, columns: Sequence[Column]
) -> ValueRow:
    role, nbytes = str(value["role"]), nbytes_of(value)
    hue = _HUES.get(role, "grey")
    cells = {"role": tag(role, hue), "type": signature(value), "size": size(nbytes)}
    if statistics is not None and (found := statistics.get(value["name"])) is not None:
        cells |= _statistics(found)
    shown = [cells.get(column.label, "") for column in columns]
    return ValueRow(str(value["name"]), shown, nbytes, [role], hue, rank_of(role))


def rank_of(role: str) -> int:
    """Weights come first, then the optimizer."""
    return 0 if role == "weight" else 1 if role in OPTIMIZER else 2


def signature(value: Mapping[str, Any]) -> str:
    """The dtype and shape of a value, as HTML."""
    shape = value["shape"]
    if shape is None:
        return "object"
    return text(f"{value['dtype']} ({', '.join(str(int(axis)) for axis in shape)})")


def nbytes_of(value: Mapping[str, Any]) -> int:
    """The size of a value."""
    nbytes = int(value["nbytes"])
    if nbytes < 0:
        raise ValueError("a size is negative")
    return nbytes


def _statistics(found: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a value that was read, or why it was not."""
    if "error" in found:
        message = text(one_line(str(found["error"])))
        return {"histogram": f'<span class="bad">{message}</span>'}
    counts = [int(one) for one in found["histogram"]]
    bad = int(found["nonfinite"])
    picture = (
        f'<svg viewBox="0 0 84 20" role="img"><title>{max(counts, default=0):,} elements in the '
        f"highest bar</title>{bars(counts)}</svg>"
    )
    return {
        "min": number(found["least"]),
        "max": number(found["greatest"]),
        "mean": number(found["mean"]),
        "std": number(found["std"]),
        "zeros": percent(int(found["zeros"]) / max(int(found["count"]), 1)),
        _NONFINITE.label: f'<span class="bad">{bad:,}</span>' if bad else "0",
        "histogram": picture if counts else "",
    }
