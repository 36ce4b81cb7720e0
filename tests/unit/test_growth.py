"""Work on metadata grows in proportion to the number of values: calls are counted, not time."""

from __future__ import annotations

import cProfile
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfckpt.core.inventory import LIST, SEQUENCE, VARIABLE, Container, Entry, Inventory, Layer, Role
from tfckpt.planning import Status, make_plan, render_text
from tfckpt.policy import Policy
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.commits import record_file
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.tools.comparison import ValueChecksum, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FEW, MANY = 2_000, 8_000
# Calls that are made once, or once for each doubling, whatever there is.
SLACK = 1.05


def inventory(values: int, model: str = "model", layer: str = "block") -> Inventory:
    """A stack of layers, each with a kernel, a bias and Adam's slots of both."""
    entries: dict[str, Entry] = {}
    layers = []
    for index in range(values // 6):
        place = f"{layer}_{index}" if index else layer
        layers.append(
            Layer(place, place, auto=index == 0, given=index > 0, cls="" if index else layer)
        )
        for word, shape in (("kernel", (2, 3)), ("bias", (3,))):
            of = f"{model}/{layers[-1].place}/{word}"
            nbytes, key = 4 * int(np.prod(shape)), f"v/{len(entries)}/.ATTRIBUTES/VARIABLE_VALUE"
            entries[of] = Entry(of, Role.WEIGHT, "float32", shape, nbytes, key)
            for slot in ("momentum", "velocity"):
                name = f"optimizer/{slot}/{of.removeprefix('model/')}"
                key = f"v/{len(entries)}/.ATTRIBUTES/VARIABLE_VALUE"
                entries[name] = Entry(name, Role.SLOT, "float32", shape, nbytes, key, slot, of)
    kinds = {"optimizer": "adam"}
    return Inventory(
        "here",
        entries,
        {model: Container(SEQUENCE, tuple(layers))},
        optimizers=kinds,
        complete=True,
    )


def calls(task: Callable[[], Any]) -> int:
    """How many functions are called, C's own included."""
    profile = cProfile.Profile()
    profile.runcall(task)
    return sum(one.callcount for one in profile.getstats())  # type: ignore[attr-defined]


def assert_linear(task: Callable[[int], Callable[[], Any]], few: int = FEW) -> None:
    task(few)()  # what is done but once, such as imports, is done
    assert calls(task(few * MANY // FEW)) < SLACK * MANY / FEW * calls(task(few))


def numbered(values: int) -> Inventory:
    """With layers of automatic names, in the order in which they are told of."""
    found = inventory(values)
    places = [layer.place for layer in found.containers["model"].layers]
    layers = tuple(Layer(place, place, auto=True, given=False, cls="block") for place in places)
    held = {"model": Container(SEQUENCE, layers)}
    return Inventory("here", found.entries, held, optimizers=found.optimizers)


def shifted(values: int) -> Inventory:
    """The same without its first layer: every name is that of another layer."""
    found = numbered(values)
    held = {"model": Container(SEQUENCE, found.containers["model"].layers[1:])}
    entries = {n: e for n, e in found.entries.items() if "/block/" not in n}
    return Inventory("here", entries, held, optimizers=found.optimizers)


class Layers(tuple[Layer, ...]):
    """Layers of which each is a call when they are looked through."""

    def __iter__(self) -> Iterator[Layer]:
        yield from super().__iter__()


def kernels(layers: Iterable[Layer], word: str = "kernel", sizes: int = MANY) -> Inventory:
    """A stack of layers with one value each, of so many different sizes."""
    stack = Layers(layers)
    names = {f"model/{layer.place}/{word}": at % sizes for at, layer in enumerate(stack)}
    entries = {n: Entry(n, Role.WEIGHT, "float32", (size,)) for n, size in names.items()}
    return Inventory("here", entries, {"model": Container(SEQUENCE, stack)})


def unnamed(values: int) -> Inventory:
    return kernels(Layer(f"layer_with_weights-{i}") for i in range(values))


def variables(values: int) -> Inventory:
    """A list of variables."""
    names = [f"model/{index}" for index in range(values)]
    entries = {name: Entry(name, Role.WEIGHT, "float32", (2,)) for name in names}
    layers = Layers(Layer(str(index), cls=VARIABLE) for index in range(values))
    return Inventory("here", entries, {"model": Container(LIST, layers)})


def chained(values: int, first: int) -> Inventory:
    """Layers of a class of which each has the settings that the next one had."""
    named = ((f"dense_{at}", at, f"units {at + first}") for at in range(values))
    layers = (Layer(n, n, True, False, "dense", at, settings=units) for n, at, units in named)
    return kernels(layers, sizes=1)


def classes(values: int, head: str) -> Inventory:
    """Layers of as many classes, and one of any class."""
    names = (f"class{index}" for index in range(values))
    layers = [Layer(name, name, True, False, name, 0) for name in names]
    return kernels([*layers, Layer(head, head, given=True)], sizes=1)


RENAME = {"checkpoint": "net/**", "model": "model/**"}
PLANS = {
    "the same": (Policy(), inventory, inventory),
    "renamed": (Policy(rename=(RENAME,)), lambda n: inventory(n, "net"), inventory),
    "excluded": (Policy(exclude=("model/block_7/**", "**/bias")), inventory, inventory),
    "by position": (Policy(match=("structure",)), lambda n: inventory(n, layer="a"), inventory),
    "another model": (Policy(), lambda n: inventory(n, layer="a"), inventory),
    "suspect": (Policy(), shifted, numbered),
    "no names, one more": (
        Policy(),
        unnamed,
        lambda n: kernels(Layer(f"l{i}", f"l{i}", given=True) for i in range(n + 1)),
    ),
    "no names, others in them": (
        Policy(),
        unnamed,
        lambda n: kernels((Layer(f"l{i}", f"l{i}", given=True) for i in range(n + 1)), "w"),
    ),
    "a longer list": (Policy(), variables, lambda n: variables(n + 1)),
    "a chain of settings": (Policy(), lambda n: chained(n, 0), lambda n: chained(n, 1)),
    "many classes": (Policy(), lambda n: classes(n, "old"), lambda n: classes(n, "new")),
    "nothing here": (Policy(), inventory, lambda n: Inventory("here", {})),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_and_its_report(case: str) -> None:
    policy, there, here = PLANS[case]

    def task(size: int) -> Callable[[], Any]:
        stored, live = there(size), here(size)
        return lambda: render_text(make_plan(policy, stored, live))

    assert_linear(task, FEW if case in {"the same", "excluded", "renamed"} else FEW // 4)


def test_a_reason_does_not_name_all_layers_of_a_name() -> None:
    def exchanged(values: int, *names: str) -> Inventory:
        labels = [name for name in names for _ in range(values // 2)]
        found = kernels(Layer(str(at), label, given=True) for at, label in enumerate(labels))
        held = found.containers["model"]._replace(kind=LIST)
        return dataclasses.replace(found, containers={"model": held})

    for size in (FEW, MANY):
        stored, live = exchanged(size, "left", "right"), exchanged(size, "right", "left")
        plan = make_plan(Policy(), stored, live)
        assert len(plan.errors) == size
        assert all(len(step.reason) < 1000 for step in plan.errors)


def test_what_is_left_over_is_looked_at_once() -> None:
    stored = inventory(MANY)
    few = {n: e for n, e in stored.entries.items() if n.startswith("model/block_7/")}
    plan = make_plan(Policy(), stored, Inventory("here", few))  # and what is done but once
    left = [step for step in plan.steps if step.status is Status.UNEXPECTED]
    assert len(left) == len(stored.entries) - len(few)
    assert calls(lambda: make_plan(Policy(), stored, Inventory("here", few))) < 10 * MANY


def test_a_diff() -> None:
    def task(size: int) -> Callable[[], Any]:
        a, b = inventory(size), inventory(size, layer="a")
        marks = [
            {n: ValueChecksum(i, distinctive=i % 3 > 0) for i, n in enumerate(s.entries)}
            for s in (a, b)
        ]
        return lambda: compare(a, b, *marks)

    assert_linear(task)


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    found = {}
    for size in (FEW, MANY):
        directory: Path = tmp_path_factory.mktemp(f"values_{size}")
        prefix = found[size] = str(directory / "ckpt-1")
        values = inventory(size)
        with BundleWriter(prefix) as writer:
            for entry in values.entries.values():
                writer.add(entry.key, np.zeros(entry.shape, np.float32))
            writer.finish()
        digest = record_file.index_digest(prefix)
        described = record_file.CommitRecord(1, values, digest, record_file.now())
        Path(record_file.path_of(prefix)).write_bytes(record_file.render(described))
    return found


@pytest.mark.parametrize(
    "task",
    [
        lambda prefix: Bundle.open(prefix).close(),
        lambda prefix: open_checkpoint(prefix).close(),
        lambda prefix: record_file.render(record_file.read(prefix)),
    ],
    ids=["index", "checkpoint", "record"],
)
def test_what_is_stored(prefixes: dict[int, str], task: Callable[[str], Any]) -> None:
    assert_linear(lambda size: lambda: task(prefixes[size]))
