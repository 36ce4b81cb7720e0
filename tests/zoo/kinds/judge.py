"""Whether a restore that came before its model is right, for any kind, flavour and file."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pickle
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import tfckpt
from zoo.forkserver import ForkServer
from zoo.kinds import agents, built, models, programs
from zoo.kinds.parts import Made
from zoo.variables import inner

Values = dict[str, np.ndarray]
EXACT, WAITS, REFUSED, DIFFERS, WRONG = "exact", "waits", "refused", "differs", "WRONG"
FLAVOURS = ("keras", "tf_keras")
KINDS: dict[str, Callable[[Any], Made]] = {
    **models.KINDS,
    **built.KINDS,
    **programs.KINDS,
    **agents.KINDS,
}
BEFORE, AFTER = 3, 2  # steps
PRELOAD = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.kinds.judge")
LIMIT = 600.0  # seconds, of one of the two processes


class Found(NamedTuple):
    """What came of a restore.

    Attributes:
        names: of the values that are other ones at the end, or are missing.
        details: what was said, or seen.
    """

    cell: str
    names: tuple[str, ...] = ()
    details: str = ""


class Whole(NamedTuple):
    """A run that nothing has interrupted: its files, and what it had at the save and at the end."""

    files: Mapping[str, str]
    saved: Values
    ended: Values


def values_of(objects: Mapping[str, Any]) -> Values:
    """All values by their paths, as TensorFlow finds them, and Keras's own that it does not.

    By public names where there are any, since others come and go with the first call; of an
    optimizer in its own order.
    """
    variables: dict[str, Any] = {}
    seen: dict[int, Any] = {}
    things = [("", tf.train.Checkpoint(**objects))]

    def take(name: str, each: Any) -> None:
        variable = inner(each)
        if id(variable) not in seen:
            seen[id(variable)] = variables[name] = variable

    for private in (False, True):
        for path, thing in things:
            if hasattr(thing, "apply_gradients") and not isinstance(thing, tf.Module):
                continue
            for name, child in sorted(tf.train.TrackableView.children(thing).items()):
                below = f"{path}/{name}"
                if name.startswith("_") > private or below == "/save_counter":
                    continue
                if _is_variable(child):
                    take(below, child)
                elif id(child) not in seen:
                    seen[id(child)] = child
                    things.append((below, child))
    words: Values = {}
    for path, thing in things:  # optimizers, and states of random numbers
        if hasattr(thing, "get_slot_names"):
            variables |= {f"{path}/{name}": slot for name, slot in _slots(thing, variables)}
            continue
        with contextlib.suppress(ValueError, TypeError):  # it is not built; a dict of TensorFlow's
            more = getattr(thing, "variables", ())
            for number, each in enumerate(filter(_is_variable, more() if callable(more) else more)):
                take(f"{path}/{number}", each)
        if hasattr(thing, "get_vocabulary"):
            words[f"{path}/vocabulary"] = np.array(thing.get_vocabulary())
    return {name: np.asarray(variable) for name, variable in variables.items()} | words


def _slots(optimizer: Any, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Of a tf.compat.v1 or legacy optimizer."""
    for name, variable in variables.items():
        for slot in optimizer.get_slot_names():
            with contextlib.suppress(KeyError, AttributeError):
                if (found := optimizer.get_slot(variable, slot)) is not None:
                    yield f"{name}/{slot}", found


def _is_variable(thing: Any) -> bool:
    return isinstance(thing, tf.Variable) or hasattr(thing, "_value")


def _begun(k: Any, make: Callable[[Any], Made], seed: int) -> Made:
    """New objects, named as in a new process."""
    gc.freeze()  # what is left of other kinds is not walked again
    k.backend.clear_session()
    k.utils.set_random_seed(seed)
    return make(k)


def whole(k: Any, make: Callable[[Any], Made], directory: Path, writers: Collection[Any]) -> Whole:
    made = _begun(k, make, 1)
    made.first()
    for _ in range(BEFORE):
        made.step()
    saved = values_of(made.objects)
    files = {
        writer.__name__: str(writer.Checkpoint(**made.objects).write(str(directory / f"w{n}")))
        for n, writer in enumerate(writers)
    }
    for _ in range(AFTER):
        made.step()
    return Whole(files, saved, values_of(made.objects))


# Each way that a restore can be asked for


def by_checkpoint(path: str, objects: Mapping[str, Any]) -> Any:
    return tfckpt.Checkpoint(**objects).read(path)


def by_run(path: str, objects: Mapping[str, Any]) -> Any:
    return tfckpt.from_config({"version": 1, "restore": {"path": path}}, **objects).restore()


def by_call(path: str, objects: Mapping[str, Any]) -> Any:
    return tfckpt.restore(path, **objects)


def by_tensorflow(path: str, objects: Mapping[str, Any]) -> Any:
    return tf.train.Checkpoint(**objects).read(path)


WAYS = {"Checkpoint": by_checkpoint, "run": by_run, "call": by_call}


def restored(
    k: Any, make: Callable[[Any], Made], path: str, wanted: Whole, restore: Callable[..., Any]
) -> Found:
    """What came of restoring this file, in this way, before a step."""
    made = _begun(k, make, 2)
    before = values_of(made.objects)
    try:
        held = restore(path, made.objects)
    except tfckpt.TfckptError as error:
        changed = _other(before, values_of(made.objects))
        text = " ".join(str(error).split())
        return Found(WRONG if changed else REFUSED, changed, f"{type(error).__name__}: {text}")
    now = values_of(made.objects)
    at_once = _other({n: v for n, v in wanted.saved.items() if n in now}, now)
    try:
        for _ in range(AFTER):
            made.step()
    except Exception as error:
        return Found(WRONG, (), f"the first step raises {type(error).__name__}: {error}")
    del held  # a status that waits
    at_the_end = _other(wanted.ended, values_of(made.objects))
    if at_the_end or at_once:
        return Found(DIFFERS, at_the_end or at_once, f"{len(at_once)} differ before the first step")
    missing = wanted.saved.keys() - now.keys()
    return Found(WAITS if missing else EXACT, (), f"{len(missing)} values came later")


def _other(wanted: Values, found: Values) -> tuple[str, ...]:
    """The names of values that are not the same, or that only one has."""
    same = {
        name
        for name in wanted.keys() & found.keys()
        if wanted[name].dtype == found[name].dtype and np.array_equal(wanted[name], found[name])
    }
    return tuple(sorted((wanted.keys() | found.keys()) - same))


# What is expected


class Row(NamedTuple):
    """What comes of a kind, where it is not exact.

    Attributes:
        why: a regular expression for the error of a refusal; the reason in words, if it waits or
            differs.
    """

    cell: str
    why: str = ""


COMES_LATER = Row(WAITS, "plain modules have no record of a call: TensorFlow restores them")
BY_A_FLAG = Row(REFUSED, r"model \(Net\) cannot be built .* missing .*'wide'")
ROWS: dict[tuple[str, str], Row] = {
    ("lazy module", ""): COMES_LATER,
    ("lazy module, optimizer", ""): COMES_LATER,
    ("lazy module beside", ""): COMES_LATER,
    ("made in call, by a flag", ""): BY_A_FLAG,
    ("LoRA enabled later", ""): Row(REFUSED, r"optimizer \(Adam\) has no variables yet"),
    ("Dropout", "tf_keras"): Row(DIFFERS, "tf_keras draws by the global generator"),
}
# Kinds that only one flavour can run.
ONLY = {
    "quantized": "keras",
    "LoRA": "keras",
    "LoRA enabled later": "keras",
    "v1 Adam": "tf_keras",
}
CASES = [(name, f) for name in KINDS for f in FLAVOURS if ONLY.get(name, f) == f]
USUAL = [(n, ONLY.get(n, FLAVOURS[at % 2])) for at, n in enumerate(KINDS)]  # the others are long


def expected(name: str, flavour: str) -> Row:
    return ROWS.get((name, flavour)) or ROWS.get((name, "")) or Row(EXACT)


def way_of(name: str, flavour: str) -> str:
    """One for each kind and flavour, so that all are tried."""
    return [*WAYS][CASES.index((name, flavour)) % len(WAYS)]


# In two processes: one saves all kinds of a flavour, the other one restores them


def save_all(flavour: str, names: Sequence[str], folder: str) -> None:
    k = importlib.import_module(flavour)
    for name in names:
        (directory := Path(folder, name)).mkdir()
        run = whole(k, KINDS[name], directory, [tfckpt, tf.train])
        (directory / "run").write_bytes(pickle.dumps(run))


def restore_all(flavour: str, cases: Sequence[tuple[str, str]], folder: str) -> list[Found]:
    return [restore_one(flavour, name, way, Path(folder, name)) for name, way in cases]


def restore_one(flavour: str, name: str, way: str, directory: Path) -> Found:
    k, make = importlib.import_module(flavour), KINDS[name]
    run: Whole = pickle.loads((directory / "run").read_bytes())
    ours, theirs = run.files[tfckpt.__name__], run.files[tf.train.__name__]
    found, row = restored(k, make, ours, run, WAYS[way]), expected(name, flavour)
    if found.cell == DIFFERS:  # as TensorFlow does with its own file, or it is wrong
        other = restored(k, make, theirs, run, by_tensorflow)
        if {*found.names} - {*other.names}:
            return found._replace(cell=WRONG)
    if found.cell == REFUSED == row.cell and not re.search(row.why, found.details):
        return found._replace(cell=WRONG)
    return found


def measure(
    server: ForkServer, flavour: str, cases: Sequence[tuple[str, str]], folder: Path
) -> dict[tuple[str, str], Found]:
    """What comes of kinds that are restored in these ways; the server has imported ``PRELOAD``."""
    names = [*dict.fromkeys(name for name, _ in cases)]
    server.run(f"{__name__}:save_all", flavour, names, str(folder), timeout=LIMIT).result()
    found = server.run(f"{__name__}:restore_all", flavour, cases, str(folder), timeout=LIMIT)
    return {case: Found(*each) for case, each in zip(cases, found.result(), strict=True)}
