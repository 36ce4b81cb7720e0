"""What each assertion on a status says, case by case, for plain TensorFlow and for tfckpt.

Code written against TensorFlow's statuses keeps its meaning: the two columns differ only where
TensorFlow's answer is about nothing at all, and where tfckpt has built the optimizer. A failed
assertion on tfckpt's status also puts everything back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from zoo.models import chain
from zoo.values import fill, read, untouched

import tfckpt

ASSERTIONS = ("assert_nontrivial_match", "assert_existing_objects_matched", "assert_consumed")
BOTH, WITH_MORE = ("model", "optimizer"), ("model", "optimizer", "extra_state")


class Case(NamedTuple):
    """How the checkpoint is written and restored, and which of ASSERTIONS pass."""

    plain: str
    tfckpt: str | None  # None: refused before there is a status
    write: str = "save"
    restore: str = "restore"
    stored: tuple[str, ...] = BOTH
    live: tuple[str, ...] = BOTH
    unbuilt: bool = False


CASES = {
    "full match": Case("yes yes yes", "yes yes yes"),
    "read of save": Case("yes yes no", "yes yes no", restore="read"),
    "restore of write": Case("yes no no", "yes no no", write="write"),
    "read of write": Case("yes yes yes", "yes yes yes", write="write", restore="read"),
    "unbuilt optimizer": Case("yes yes no", "yes yes yes", unbuilt=True),
    "extra values": Case("yes yes no", "yes yes no", stored=WITH_MORE),
    "extra variables": Case("yes no no", "yes no no", live=WITH_MORE),
    "unrelated": Case("yes no no", None, stored=("extra_state",)),
    "no path": Case("no no no", "no no no", restore="restore of None"),
}


def made(k, seed, *, unbuilt=False):
    model, optimizer, extra = chain(k, "a", "b"), k.optimizers.Adam(), tf.Variable(0.0)
    if not unbuilt:
        optimizer.build(model.trainable_variables)
        fill(seed, optimizer)
    fill(seed, model, extra)
    return {"model": model, "optimizer": optimizer, "extra_state": extra}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_status(case, flavour, tmp_path):
    source, target = made(flavour, 1), made(flavour, 2, unbuilt=case.unbuilt)
    checkpoint = tf.train.Checkpoint(**{name: source[name] for name in case.stored})
    prefix = getattr(checkpoint, case.write)(str(tmp_path / "ckpt"))
    method, _, nothing = case.restore.partition(" of ")
    path = None if nothing else prefix
    live = {name: target[name] for name in case.live}
    ours = getattr(tfckpt.Checkpoint(**live), method)
    if case.tfckpt is None:
        with untouched(*live.values()), pytest.raises(tfckpt.RefusedError):
            ours(path)
    passing = dict(zip(ASSERTIONS, (case.tfckpt or "").split(), strict=False))
    for assertion in sorted(passing, key=passing.get):  # those that fail put all back
        if passing[assertion] == "yes":
            status = ours(path)
            assert getattr(status, assertion)() is status
            for name in BOTH:
                np.testing.assert_equal(read(live[name]), read(source[name]))
        else:
            with untouched(*live.values()), pytest.raises(AssertionError) as failed:
                getattr(ours(path), assertion)()
            assert nothing or isinstance(failed.value, tfckpt.StatusAssertionError)

    target = made(flavour, 2, unbuilt=case.unbuilt)
    status = getattr(tf.train.Checkpoint(**{n: target[n] for n in case.live}), method)(path)
    for assertion, answer in zip(ASSERTIONS, case.plain.split(), strict=True):
        if answer == "yes":
            getattr(status, assertion)()
        else:
            with pytest.raises(AssertionError):
                getattr(status, assertion)()
