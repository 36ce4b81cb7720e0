"""Small models with branches, drawn at random, of which each layer is known after an edit.

A model is a list of calls: each a key, what is called, and the indices of the values that go in;
value 0 is the input, value `n` what call `n` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

WEIGHTED = ("dense", "normalization")


class Call(NamedTuple):
    key: int
    what: str
    inputs: tuple[int, ...]


def drawn(draw: random.Random) -> list[Call]:
    """Three to eight calls; at least one has weights."""
    calls = [Call(0, "dense", (0,))]
    for key in range(1, draw.randint(3, 8)):
        what = draw.choice(["dense", "dense", "dense", "normalization", "relu", "add"])
        count = 2 if what == "add" else 1
        calls.append(Call(key, what, tuple(draw.randint(0, key) for _ in range(count))))
    return calls


def edited(draw: random.Random, calls: Sequence[Call]) -> list[Call]:
    """With a call more, one fewer, or the inputs of an addition exchanged; or as it was."""
    at, edit = draw.randrange(len(calls)), draw.choice(["", "", "relu", "dense", "less", "swap"])
    chosen, before, after = calls[at], list(calls[:at]), calls[at + 1 :]
    if edit in ("relu", "dense"):
        new = Call(1000, edit, chosen.inputs[:1])
        return [
            *before,
            new,
            chosen._replace(inputs=(at + 1, *(_later(x, at) for x in chosen.inputs[1:]))),
            *(call._replace(inputs=tuple(_later(x, at) for x in call.inputs)) for call in after),
        ]
    if edit == "less" and chosen.what != "add" and at:
        value = {at + 1: chosen.inputs[0]}
        return before + [
            call._replace(inputs=tuple(value.get(x, x - (x > at)) for x in call.inputs))
            for call in after
        ]
    if edit == "swap":
        return [call._replace(inputs=call.inputs[::-1]) for call in calls]
    return list(calls)


def _later(value: int, at: int) -> int:
    return value + (value > at)


def built(
    flavour: Any, calls: Sequence[Call], *, head: tuple[str | None, int] | None, nested: bool
) -> tuple[Any, dict[Any, Any]]:
    """The model, which may be nested in another one; and its layers with weights, by key."""
    layers = flavour.layers
    inputs = flavour.Input((4,))
    values, known = [inputs], {}
    for key, what, at in calls:
        if what == "add":
            values.append(layers.Add()([values[x] for x in at]))
            continue
        layer = {
            "dense": lambda: layers.Dense(4),
            "normalization": layers.LayerNormalization,
            "relu": layers.ReLU,
        }[what]()
        if what in WEIGHTED:
            known[key] = layer
        values.append(layer(values[at[0]]))
    used = {x for call in calls for x in call.inputs}
    ends = [value for x, value in enumerate(values) if x not in used]
    outputs = layers.Concatenate()(ends) if len(ends) > 1 else ends[0]
    if nested:
        inner = flavour.Model(inputs, outputs)
        inputs = flavour.Input((4,))
        outputs = inner(inputs)
    if head is not None:
        name, units = head
        known[head] = layers.Dense(units, name=name)
        outputs = known[head](outputs)
    return flavour.Model(inputs, outputs), known
