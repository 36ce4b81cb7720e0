"""What came of one restore, judged by the values: NumPy's, by what they mean in the program."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

import tfckpt
from zoo.everyday.programs import AVERAGES, fill
from zoo.everyday.writers import by_tfckpt, restore
from zoo.pairs.build import start_anew
from zoo.pairs.verdicts import listening

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from zoo.everyday.programs import Make, Program
    from zoo.everyday.writers import Call, Writer

    Values = dict[str, np.ndarray]

FLAVOURS = ("keras", "tf_keras")
FIRST, PASTED, REFUSED, WRONG = "first", "pasted", "refused", "WRONG"
_OF_PYTHON = re.compile(r"policy ?= ?(\{.*\})")
_OF_A_CONFIG = re.compile(r"policy restores [^:]*:\n\n((?: {4}.*\n?)+)")


@dataclass(frozen=True)
class Row:
    """One everyday restore.

    Attributes:
        old: the program that saves.
        new: the one that restores; the same one if None.
        save: how the first one saves.
        call: what the second one calls.
        should: what should come of it.
        left: a regular expression for what the report or the log must say, if something is left.
        stays: what of the program that restores keeps its value although the other one has it.
    """

    old: Make
    new: Make | None = None
    save: Writer = by_tfckpt
    call: Call = restore
    should: str = FIRST
    left: str = ""
    flavours: tuple[str, ...] = FLAVOURS
    stays: tuple[str, ...] = ()


class Measured(NamedTuple):
    """What came of a row, and why it is no better."""

    cell: str
    details: str


def measure(row: Row, keras: Any, folder: Path) -> Measured:
    """Save as one program, restore as another one, started anew."""
    start_anew(keras)
    old = row.old(keras)
    fill({**old.weights(), **old.state()}, seed=1)
    saved = {name: v.numpy() for name, v in (*old.weights().items(), *old.state().items())}
    path = row.save(old, folder, keras)
    start_anew(keras)
    new = (row.new or row.old)(keras)
    fill(new.weights(), seed=2)
    return _Judged(row, saved, new).of(path)


class _Judged:
    def __init__(self, row: Row, saved: Values, new: Program) -> None:
        self._row = row
        self._saved = saved
        self._new = new
        self._before = self._now()

    def _now(self) -> Values:
        variables = {**self._new.weights(), **self._new.state()}
        return {name: variable.numpy() for name, variable in variables.items()}

    def of(self, path: str) -> Measured:
        with listening() as said:
            try:
                report = self._row.call(self._new, path, None)
            except tfckpt.TfckptError as error:
                return self._refused(path, error)
            except Exception as error:
                return Measured(REFUSED, f"{type(error).__name__}: {error}")
        return self._right(FIRST, "\n".join([*said, str(report)]))

    def _refused(self, path: str, error: Exception) -> Measured:
        now = self._now()
        if changed := [n for n, value in self._before.items() if not np.array_equal(value, now[n])]:
            return Measured(WRONG, f"refused, but {', '.join(changed)} changed: {error}")
        policy = _shown(str(error))
        if policy is None:
            return Measured(REFUSED, str(error))
        with listening() as said:
            try:
                report = self._row.call(self._new, path, policy)
            except Exception as again:
                return Measured(REFUSED, f"{error}\n\npasted: {type(again).__name__}: {again}")
        return self._right(PASTED, "\n".join([*said, str(report), f"\nrefused was: {error}"]))

    def _right(self, cell: str, said: str) -> Measured:
        wrong = [*self._wrong_weights(), *self._wrong_optimizers()]
        if self._row.left and not re.search(self._row.left, said):
            wrong.append(f"nothing says {self._row.left!r}")
        details = f"{'; '.join(wrong)}\n{said}" if wrong else said
        return Measured(WRONG if wrong else cell, details)

    def _wrong_weights(self) -> Iterator[str]:
        for name, variable in self._new.weights().items():
            kept = name.partition("/")[0] in self._row.stays
            meant = self._before[name] if kept else self._saved.get(name, self._before[name])
            found = variable.numpy()
            if np.array_equal(found, meant):
                continue
            whose = [n for n, value in self._saved.items() if np.array_equal(value, found)]
            left = np.array_equal(found, self._before[name])
            yield f"{name} has {whose or ('its own value' if left else 'something else')}"

    def _wrong_optimizers(self) -> Iterator[str]:
        """An optimizer is restored as a whole, or it is as it was before."""
        state = {name: variable.numpy() for name, variable in self._new.state().items()}
        for name in self._new.optimizers:
            had, has = _of(name, self._saved), _of(name, state)
            if not had or name in self._row.stays:
                yield from self._fresh(name, has)
            elif _kinds(had) == _kinds(has) or has["iterations"] == had["iterations"]:
                yield from self._restored(name, had, has)
            else:
                yield from self._fresh(name, has)

    def _restored(self, name: str, had: Values, has: Values) -> Iterator[str]:
        same, slots = _kinds(had) == _kinds(has), _kinds(has) - {"iterations"}
        if slots and not slots & _kinds(had):
            yield f"{name}: the steps of an optimizer of which nothing else is restored"
        for what, value in has.items():
            kind, _, part = what.partition("/")
            if what in had and part.partition("/")[0] not in self._row.stays:
                if (same or kind != "rate") and not np.array_equal(value, had[what]):
                    yield f"{name}/{what} is not what was saved"
            elif kind == AVERAGES:
                if not np.array_equal(value, self._new.weights()[part].numpy()):
                    yield f"{name}/{what} is no average of the restored weights"
            elif value.any() and part:
                yield f"{name}/{what} is neither saved nor zero"

    def _fresh(self, name: str, has: Values) -> Iterator[str]:
        before = _of(name, self._before)
        for what, value in has.items():
            if what.partition("/")[0] == AVERAGES:
                continue  # the first step sets it
            if not np.array_equal(value, before.get(what, np.zeros_like(value))):
                yield f"{name}/{what} is not as it was"


def _shown(text: str) -> Mapping[str, Any] | None:
    """The policy that a refusal shows, to be pasted into a call or a config."""
    if found := _OF_PYTHON.findall(text):
        return dict(ast.literal_eval(found[-1]))
    if found := _OF_A_CONFIG.findall(text):
        return dict(yaml.safe_load(textwrap.dedent(found[-1])))
    return None


def _of(optimizer: str, values: Values) -> Values:
    head = f"{optimizer}/"
    return {n.removeprefix(head): value for n, value in values.items() if n.startswith(head)}


def _kinds(values: Values) -> set[str]:
    """The lists of an optimizer, and its other values without its rate."""
    return {what.partition("/")[0] for what in values} - {"rate"}
