"""The view of `tfckpt inspect --model`: the names of a checkpoint beside those of a model.

They are paired as by a restore without a policy, or by the suggested one if that is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.text import collapse, printable, signature
from tfckpt.planning.pairs import paired
from tfckpt.planning.report import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfckpt.core.inventory import Entry
    from tfckpt.planning import Plan
    from tfckpt.planning.pairs import ValuePair
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint

_Row = tuple[str, ...]


def show_pairs(plan: Plan, checkpoint: StoredCheckpoint) -> None:
    """Print what goes where, what both have but stays apart, and what only one side has.

    At a terminal, equal blocks are shown as one.
    """
    from tfckpt.cli.output.tables import is_terminal, show

    print(plan.suggestion or verdict(plan))
    restored, apart, stored, live = _named(plan, checkpoint)
    tables: tuple[tuple[_Row, Iterable[_Row]], ...] = (
        (("checkpoint", "model"), ((_name(pair.stored), _name(pair.live)) for pair in restored)),
        ((f"not restored ({len(apart):,})", "checkpoint", "model"), _apart(apart)),
        ((f"only in the checkpoint ({len(stored):,})", "type"), _alone(stored)),
        ((f"only in the model ({len(live):,})", "type"), _alone(live)),
    )
    for title, rows in tables:
        if lines := list(_folded(rows) if is_terminal() else rows):
            print()
            show(title, lines)


def pairs_document(plan: Plan, checkpoint: StoredCheckpoint, target: str) -> dict[str, Any]:
    """The pairs for --json; a name is None where only the other side has the value."""
    return {
        "target": target,
        "ok": plan.ok,
        "suggestion": dict(plan.suggestion.changes) if plan.suggestion else {},
        "pairs": [pair.to_json() for pairs in _named(plan, checkpoint) for pair in pairs],
    }


def _named(plan: Plan, checkpoint: StoredCheckpoint) -> Iterator[list[ValuePair]]:
    """The pairs with names as `tfckpt inspect` prints them, which a policy may use as well."""
    names = {entry.key: entry.name for entry in checkpoint.inventory.entries.values()}
    suggested = plan.suggestion and plan.suggestion.plan
    for pairs in paired(suggested or plan):
        yield [
            pair._replace(stored=pair.stored._replace(name=names[pair.stored.key]))
            if pair.stored is not None and pair.stored.key in names
            else pair
            for pair in pairs
        ]


def _apart(pairs: Iterable[ValuePair]) -> Iterator[_Row]:
    """A row with both types; two rows if the names differ."""
    for pair in pairs:
        if _name(pair.stored) == _name(pair.live):
            yield _name(pair.stored), _type(pair.stored), _type(pair.live)
        else:
            yield _name(pair.stored), _type(pair.stored), ""
            yield _name(pair.live), "", _type(pair.live)


def _alone(pairs: Iterable[ValuePair]) -> Iterator[_Row]:
    for pair in pairs:
        entry = pair.stored or pair.live
        yield _name(entry), _type(entry)


def _name(entry: Entry | None) -> str:
    return "" if entry is None else entry.name


def _type(entry: Entry | None) -> str:
    return "" if entry is None else signature(entry)


def _folded(rows: Iterable[_Row]) -> Iterator[_Row]:
    for block in collapse("\n".join(map(printable, row)) for row in rows):
        yield tuple(block.text.split("\n"))
