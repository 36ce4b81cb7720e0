"""What comes of an optimizer in a restore: a fixed part of the table of `python -m zoo.continued`.

Each optimizer with itself in a state and a file of its own; some of two; the edits of its options;
and which optimizer is which, where keywords do not say it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo import continued
from zoo.continued import ASKED, GOES_ON, IN_PART
from zoo.optimizers import BOTH_FLAVOURS
from zoo.restores import WRITERS, stack

import tfckpt

ONE = [case for case in continued.cases() if case.same]
TWO = [case for case in continued.cases() if not case.same]
PART = [ONE[at * 45 + at * 7 % 45] for at in range(len(ONE) // 45)] + TWO[::1103]
KNOWN = """
keras3/multi built tfckpt > keras3/multi trained
keras3/multi trained tfckpt > keras3/multi unbuilt
keras3/multi trained tensorflow > keras3/multi unbuilt
tf_keras/nadam trained tensorflow > keras3/schedule_free_adamw trained
tf_keras/scaled_adam trained .weights.h5 > keras3/schedule_free_adamw trained
tf_keras/adam trained tfckpt > tf_keras/scaled_adam unbuilt
tf_keras/legacy_adam trained tensorflow > tf_keras/scaled_legacy_adam unbuilt
""".strip().splitlines()
PART += [case for case in (*ONE, *TWO) if str(case) in KNOWN and case not in PART]
CELLS = ((".keras", "trained"), ("tfckpt", "unbuilt"))
EDITS = [case for case in continued.edits() if (case.kind, case.now) in CELLS]
EDITS = [  # both ways of an edit by one cell, in turn
    pytest.param(case, id=str(case), marks=() if at % 2 == at // 4 % 2 else pytest.mark.long)
    for at, case in enumerate(EDITS)
]
ACROSS = [  # from one flavor to the other, in turn
    continued.Case((old, name), "trained", "tensorflow", (new, name), "unbuilt")
    for at, name in enumerate(BOTH_FLAVOURS)
    for old, new in [[*continued.KERAS][:: (-1) ** at]]
]
# What is not restored as it was: by the optimizers before and after the edit.
EDITED = {
    **dict.fromkeys(("adam_accumulating", "updates_of_4", "muon", "muon_without_head"), ASKED),
    "adam > adam_accumulating": ASKED,
    "sgd > sgd_momentum": IN_PART,
    "sgd > sgd_ema": IN_PART,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.mark.parametrize("case", PART, ids=str)
def test_an_optimizer_goes_on_or_begins_and_that_is_said(case, place) -> None:
    word = continued.judge(case, place)
    assert word in continued.USUAL or word.startswith("- "), word


@pytest.mark.parametrize("case", ACROSS, ids=str)
def test_an_optimizer_goes_on_in_the_other_flavour(case, place) -> None:
    """tf_keras makes room for the momentum of plain SGD, and scales in another place."""
    expected = {"sgd": IN_PART, "scaled_adam": ASKED}.get(case.new[1], GOES_ON)
    assert continued.judge(case, place) == expected


@pytest.mark.parametrize("case", EDITS)
def test_an_edited_option_is_restored_whole_said_or_asked(case, place) -> None:
    old, new = case.old[1], case.new[1]
    word, expected = continued.judge(case, place), EDITED.get(f"{old} > {new}", EDITED.get(old))
    added = {"adam_amsgrad", "adam_ema", "only_centered"}
    if case.kind == ".keras" and {old, new} & added:  # the file numbers the slots
        expected = ASKED
    elif new in added:
        expected = IN_PART
    assert word == (expected or GOES_ON)


def _adam(k: Any, model: Any, steps: int = 0) -> Any:
    optimizer = k.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    for number, variable in enumerate(optimizer.variables[2:] if steps else ()):
        variable.assign(tf.fill(variable.shape, steps + number / 8))
    optimizer.iterations.assign(steps)
    return optimizer


@WRITERS
def test_an_optimizer_of_another_keyword_is_told_by_what_it_trains(flavour, tmp_path, writer):
    def models() -> dict[str, Any]:
        return {"generator": stack(flavour, "a"), "discriminator": stack(flavour, "b")}

    old = models()
    both = {name: _adam(flavour, model, n) for n, (name, model) in enumerate(old.items(), 5)}
    for given in (
        {"optimizer": both["generator"]},
        {"gen": both["generator"], "disc": both["discriminator"]},
        {"discriminator_G": both["generator"], "generator_D": both["discriminator"]},
    ):
        path = writer.Checkpoint(**old, **given).save(str(tmp_path / str(len(given))))
        new = models()
        mine = [_adam(flavour, new[name]) for name in ("discriminator", "generator")]
        tfckpt.restore(path, optimizer_D=mine[0], optimizer_G=mine[1], **new)
        assert int(mine[1].iterations) == 5
        assert int(mine[0].iterations) == (6 if len(given) == 2 else 0)
        for one, other in zip(mine[1].variables, both["generator"].variables, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@WRITERS
@pytest.mark.parametrize("kind", ["module", "model"])
def test_optimizers_that_an_object_holds_are_told_by_what_they_train(
    flavour, tmp_path, writer, kind
):
    base = tf.Module if kind == "module" else flavour.Model

    class Agent(base):
        def __init__(self, names: tuple[str, str], steps: int | None) -> None:
            super().__init__()
            self.actor, self.critic = stack(flavour, "a"), stack(flavour, "b")
            for name, model in zip(names, (self.actor, self.critic), strict=True):
                new = flavour.optimizers.Adam(0.1)
                setattr(self, name, new if steps is None else _adam(flavour, model, steps))

        def call(self, x: Any) -> Any:
            return self.critic(self.actor(x))

    old = Agent(("opt", "critic_opt"), 5)
    path = writer.Checkpoint(agent=old).save(str(tmp_path / "x"))
    exchanged, others = ("critic_opt", "opt"), ("optimizer_A", "optimizer_C")
    for names, steps in ((others, 0), (("opt", "critic_opt"), None)):
        new = Agent(names, steps)
        tfckpt.restore(path, agent=new)
        for name, mine in zip(names, (old.opt, old.critic_opt), strict=True):
            both = (each.variables for each in (getattr(new, name), mine))
            one, other = (sorted(each.numpy().tobytes() for each in side) for side in both)
            assert one == other  # a file may list them in another order
    for names, steps, line in ((others, None, ".build("), (exchanged, 0, "optimizer: reset")):
        new = Agent(names, steps)
        before = [each.numpy() for each in new.actor.variables]
        with pytest.raises(tfckpt.RefusedError, match=re.escape(line)):
            tfckpt.restore(path, agent=new)
        np.testing.assert_array_equal(before[0], new.actor.variables[0].numpy())
