"""What came of one restore, judged by the values: NumPy's, by what they mean in the program."""

from __future__ import annotations

import ast
import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

import tfckpt
from zoo.everyday.programs import AVERAGES, Make, Program, fill
from zoo.everyday.writers import OURS, WITH_POLICY, Call, Policy, Writer, everything, restore
from zoo.pairs.build import start_anew
from zoo.pasted import listening

Values = dict[str, np.ndarray]
FLAVOURS = ("keras", "tf_keras")
FIRST, PASTED, REFUSED, WRONG = "first", "pasted", "refused", "WRONG"
_OF_PYTHON = re.compile(r"policy ?= ?(\{.*\})")
_OF_A_CONFIG = re.compile(r"policy restores [^:]*:\n\n((?: {4}.*\n?)+)")


@dataclass(frozen=True)
class Row:
    """One everyday restore."""

    old: Make  # the program that saves
    new: Make | None = None  # the one that restores; the same one if None
    save: Writer = OURS  # how the first one saves
    call: Call = restore  # what the second one calls
    left: str = ""  # what the report or the log must say if something is left, a pattern
    should: str = FIRST  # what should come of it
    flavours: tuple[str, ...] = FLAVOURS
    stays: tuple[str, ...] = ()  # of the program that restores, although the other one has it
    # What comes of it today, and why it is no better; () where that is as it should be.
    today: tuple[()] | tuple[str, str] = ()

    @property
    def expected(self) -> str:
        return self.today[0] if self.today else self.should


class Measured(NamedTuple):
    """What came of a row, and why it is no better."""

    cell: str
    details: str


def shares(cells: Mapping[tuple[str, str], str]) -> str:
    """How often it came to what, of cells by row and flavour."""
    counts = Counter(cells.values())
    each = (f"{counts[word]} {word}" for word in (FIRST, PASTED, REFUSED, WRONG))
    return f"{len(cells)} restores: {', '.join(each)}"


def measure(row: Row, k: Any) -> Measured:
    """Save as one program, restore as another one, started anew."""
    return judged(row, *_written(row.old, row.save, k), k)


def judged(row: Row, path: str, values: Values, k: Any) -> Measured:
    """Restore a file that has these values, by what they mean."""
    start_anew(k)
    new = (row.new or row.old)(k)
    fill(new.weights(), seed=2)
    return _Judge(row, values, new).of(path)


_PLACE = tempfile.TemporaryDirectory(prefix="everyday")


@cache
def _written(make: Make, save: Writer, k: Any) -> tuple[str, Values]:
    """The path and the values of what many rows restore."""
    start_anew(k)
    old = make(k)
    variables = {**old.weights(), **old.state()}
    fill(variables, seed=1)
    values = {name: variable.numpy() for name, variable in variables.items()}
    return save(old, Path(tempfile.mkdtemp(dir=_PLACE.name)), k), values


class _Judge:
    def __init__(self, row: Row, saved: Values, new: Program) -> None:
        self._row = row
        self._saved = saved
        self._new = new
        self._before = self._now()

    def _now(self) -> Values:
        variables = {**self._new.weights(), **self._new.state()}
        return {name: variable.numpy() for name, variable in variables.items()}

    def of(self, path: str) -> Measured:
        try:
            return self._right(FIRST, self._said(path, None))
        except tfckpt.TfckptError as error:
            refused = str(error)
        except Exception as error:
            return Measured(REFUSED, f"{type(error).__name__}: {error}")
        now = self._now()
        if changed := [n for n, value in self._before.items() if not np.array_equal(value, now[n])]:
            return Measured(WRONG, f"refused, but {', '.join(changed)} changed: {refused}")
        policy = _shown(refused)
        if policy is None:
            return Measured(REFUSED, refused)
        try:
            return self._right(PASTED, f"{self._said(path, policy)}\n\nrefused was: {refused}")
        except Exception as again:
            return Measured(REFUSED, f"{refused}\n\npasted: {type(again).__name__}: {again}")

    def _said(self, path: str, policy: Policy) -> str:
        call: Any = self._row.call
        if policy is not None:
            call = partial(call if call in WITH_POLICY else everything, policy=policy)
        with listening() as said:
            report = call(self._new, path)
        return "\n".join([*said, str(report)])

    def _right(self, cell: str, said: str) -> Measured:
        wrong = [*self._wrong_weights(), *self._wrong_optimizers()]
        if self._row.left and not re.search(self._row.left, said):
            wrong.append(f"nothing says {self._row.left!r}")
        return Measured(WRONG if wrong else cell, "\n".join([*wrong, said]))

    def _wrong_weights(self) -> Iterator[str]:
        for name, variable in self._new.weights().items():
            kept = name.partition("/")[0] in self._row.stays
            meant = self._before[name] if kept or name not in self._saved else self._saved[name]
            found = variable.numpy()
            if not np.array_equal(found, meant):
                sides = (("saved", self._saved), ("before", self._before))
                whose = [f"{n} {w}" for w, s in sides for n in s if np.array_equal(s[n], found)]
                yield f"{name} has {whose or 'something else'}"

    def _wrong_optimizers(self) -> Iterator[str]:
        """An optimizer is restored as a whole, or it is as it was before."""
        state = {name: variable.numpy() for name, variable in self._new.state().items()}
        for name in self._new.optimizers:
            had, has = _of(name, self._saved), _of(name, state)
            whole = had and (_kinds(had) == _kinds(has) or has["iterations"] == had["iterations"])
            if whole and name not in self._row.stays:
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


def _shown(text: str) -> Policy:
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
