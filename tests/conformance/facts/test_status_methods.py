"""What each assertion on a status says, case by case, for plain TensorFlow and for tfckpt.

Code written against TensorFlow's statuses keeps its meaning: the two columns differ only where
TensorFlow's answer is about nothing at all, and where tfckpt has built the optimizer. A failed
assertion on tfckpt's status also puts everything back.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

ASSERTIONS = ("assert_nontrivial_match", "assert_existing_objects_matched", "assert_consumed")


@dataclasses.dataclass(frozen=True)
class Case:
    """How the checkpoint is written and restored, and which of ASSERTIONS pass."""

    plain: tuple[bool, bool, bool]
    tfckpt: tuple[bool, bool, bool] | None  # None: refused before there is a status
    write: str = "save"
    restore: str = "restore"
    stored: tuple[str, ...] = ("model", "optimizer")
    live: tuple[str, ...] = ("model", "optimizer")
    unbuilt: bool = False


YES, NO = True, False
CASES = {
    "full match": Case((YES, YES, YES), (YES, YES, YES)),
    "read of save": Case((YES, YES, NO), (YES, YES, NO), restore="read"),
    "restore of write": Case((YES, NO, NO), (YES, NO, NO), write="write"),
    "read of write": Case((YES, YES, YES), (YES, YES, YES), write="write", restore="read"),
    "unbuilt optimizer": Case((YES, YES, NO), (YES, YES, YES), unbuilt=True),
    "extra values": Case(
        (YES, YES, NO), (YES, YES, NO), stored=("model", "optimizer", "extra_state")
    ),
    "extra variables": Case(
        (YES, NO, NO), (YES, NO, NO), live=("model", "optimizer", "extra_state")
    ),
    "unrelated": Case((YES, NO, NO), None, stored=("extra_state",)),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
each_assertion = pytest.mark.parametrize("assertion", ASSERTIONS)


@pytest.fixture
def objects(flavour, stack, fill) -> Callable[..., dict[str, Any]]:
    """``objects(seed)``: a model, its optimizer and one more variable, by keyword."""

    def build(seed: int, unbuilt: bool = False) -> dict[str, Any]:
        model, optimizer = stack(flavour, ["a", "b"]), flavour.optimizers.Adam()
        extra = tf.Variable(0.0)
        if not unbuilt:
            optimizer.build(model.trainable_variables)
            fill(seed, optimizer)
        fill(seed, model, extra)
        return {"model": model, "optimizer": optimizer, "extra_state": extra}

    return build


@pytest.fixture
def source(objects) -> dict[str, Any]:
    """What was saved."""
    return objects(1)


@pytest.fixture
def prefix(case: Case, source, tmp_path) -> str:
    """The checkpoint of the case, written by TensorFlow."""
    checkpoint = tf.train.Checkpoint(**{name: source[name] for name in case.stored})
    return getattr(checkpoint, case.write)(str(tmp_path / "ckpt"))


@each_case
@each_assertion
def test_status_plain_tensorflow(case: Case, assertion: str, objects, prefix) -> None:
    everything = objects(2, case.unbuilt)
    checkpoint = tf.train.Checkpoint(**{name: everything[name] for name in case.live})
    status = getattr(checkpoint, case.restore)(prefix)
    if case.plain[ASSERTIONS.index(assertion)]:
        getattr(status, assertion)()
    else:
        with pytest.raises(AssertionError):
            getattr(status, assertion)()
    status.expect_partial()


@each_case
@each_assertion
def test_status_tfckpt(
    case: Case, assertion: str, objects, source, prefix, untouched, values
) -> None:
    everything = objects(2, case.unbuilt)
    live = {name: everything[name] for name in case.live}
    checkpoint = tfckpt.Checkpoint(**live)
    if case.tfckpt is None:
        with untouched(*live.values()), pytest.raises(tfckpt.RefusedError):
            getattr(checkpoint, case.restore)(prefix)
    elif case.tfckpt[ASSERTIONS.index(assertion)]:
        status = getattr(checkpoint, case.restore)(prefix)
        assert getattr(status, assertion)() is status
        for name in ("model", "optimizer"):
            np.testing.assert_equal(values(live[name]), values(source[name]))
    else:
        with untouched(*live.values()), pytest.raises(tfckpt.StatusAssertionError):
            getattr(getattr(checkpoint, case.restore)(prefix), assertion)()


@each_assertion
def test_status_plain_tensorflow_of_none(assertion: str, objects) -> None:
    status = tf.train.Checkpoint(model=objects(1)["model"]).restore(None)
    with pytest.raises(AssertionError):
        getattr(status, assertion)()


@each_assertion
def test_status_tfckpt_of_none(assertion: str, objects, untouched) -> None:
    model = objects(1)["model"]
    with untouched(model):
        status = tfckpt.Checkpoint(model=model).restore(None)
        with pytest.raises(AssertionError):
            getattr(status, assertion)()
