"""A hint that names a rule is right when it is taken word for word, whatever was edited."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml

import tfckpt

SEQUENCE = ["dense?", "dense?", "dense?"]
EDITS = {
    "the middle one of three unnamed is removed": (SEQUENCE, [0, 2]),
    "the first one is removed": (SEQUENCE, [1, 2]),
    "one is put before": (SEQUENCE, [None, 0, 1, 2]),
    "two change places": (["dense?", "wide?", "dense?"], [1, 0, 2]),
    "one is renamed": (["a", "b", "c"], [0, "1:new", 2]),
    "two are renamed": (["a", "b", "c"], ["0:x", "1:y", 2]),
    "one is removed": (["a", "b", "c"], [0, 2]),
    "one is named": (SEQUENCE, [0, "1:named", 2]),
}
LIBRARIES = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


def built(k: Any, layers: list[tuple[str, int]]) -> Any:
    """A stack of equal layers; those of another class have the same values."""

    class Wide(k.layers.Dense):
        pass

    made = [k.Input((3,))]
    for name, fill in layers:
        cls = Wide if name == "wide?" else k.layers.Dense
        named = {} if name.endswith("?") else {"name": name}
        init = k.initializers.Constant(fill)
        made.append(cls(3, use_bias=False, kernel_initializer=init, **named))
    return k.Sequential(made)


def edited(k: Any, edit: str) -> tuple[Any, Any, list[int]]:
    """The model before, the model after, and what its layers are to have; 0 for a new one."""
    names, after = EDITS[edit]
    old = built(k, [(name, number + 1) for number, name in enumerate(names)])
    layers, wanted = [], []
    for each in after:
        at, _, name = str(each).partition(":")
        number = None if each is None else int(at)
        layers.append((name or (SEQUENCE[0] if number is None else names[number]), -9))
        wanted.append(0 if number is None else number + 1)
    return old, built(k, layers), wanted


def rules(hint: str) -> list[dict[str, Any]]:
    """The policies that a hint tells to write."""
    renames = re.findall(r"rename: (\[\{.*?\}\])", hint)
    found: list[dict[str, Any]] = [{"rename": yaml.safe_load(rule)} for rule in renames]
    return [*found, *({"match": word} for word in re.findall(r"`match: (\w+)`", hint))]


@LIBRARIES
@pytest.mark.parametrize("edit", EDITS)
def test_what_a_hint_says_gives_the_weights_that_were_meant(
    flavour, edit, library, tmp_path
) -> None:
    old, new, wanted = edited(flavour, edit)
    path = library.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    lenient = {"api": "read", "on_missing": "warn", "on_unexpected": "warn"}
    hints = set()
    for policy in ({"api": "read"}, lenient):
        plan = tfckpt.plan(path, model=new, policy=policy)
        hints |= {step.hint for step in plan.errors}
    for rule in [each for hint in sorted(hints) for each in rules(hint)]:
        new.set_weights([np.full((3, 3), -9.0) for _ in wanted])
        tfckpt.restore(path, model=new, policy={**lenient, "allow_empty": True, **rule})
        got = [float(weight[0, 0]) for weight in new.get_weights()]
        assert all(one in (-9, other) for one, other in zip(got, wanted, strict=True)), rule


@LIBRARIES
def test_a_rename_settles_which_layer_is_which_also_to_its_own_name(
    flavour, library, tmp_path
) -> None:
    old, new, _ = edited(flavour, "the middle one of three unnamed is removed")
    path = library.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    policy = {"api": "read", "exclude_checkpoint": ["model/dense_1/**"]}
    itself = {"checkpoint": "model/dense/**", "model": "model/dense/**"}
    moved = {"checkpoint": "model/dense_2/**", "model": "model/dense_1/**"}
    with pytest.raises(tfckpt.RefusedError):
        tfckpt.restore(path, model=new, policy={**policy, "rename": [moved]})
    tfckpt.restore(path, model=new, policy={**policy, "rename": [itself, moved]})
    assert [float(weight[0, 0]) for weight in new.get_weights()] == [1, 3]


def test_a_rename_of_what_holds_the_layers_settles_nothing(flavour, tmp_path) -> None:
    old, new, _ = edited(flavour, "the middle one of three unnamed is removed")
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    for glob in ("model/**", "model/*/kernel", "**"):
        rule = {"checkpoint": glob, "model": glob}
        with pytest.raises(tfckpt.RefusedError, match="automatic name"):
            tfckpt.restore(path, model=new, policy={"api": "read", "rename": [rule]})
