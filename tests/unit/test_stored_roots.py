"""What was saved under a keyword is restored into what is given under it, and into nothing else.

The values tell who got whose, and plain TensorFlow who should have.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from zoo.restores import WRITERS, filled, same, stack

import tfckpt

KEYWORDS = [
    ("teacher", "student teacher"),
    ("encoder decoder", "decoder"),
    ("model ema", "ema"),
    ("model ema", "model"),
    ("model ema", "ema other"),
]


def models(k: Any, keywords: str, first: float) -> dict[str, Any]:
    return {name: filled(stack(k, "a"), first + n) for n, name in enumerate(keywords.split())}


def values(found: dict[str, Any]) -> dict[str, float]:
    return {name: float(model.get_weights()[0][0, 0]) for name, model in found.items()}


@pytest.mark.parametrize(("stored", "live"), KEYWORDS)
def test_a_keyword_is_restored_into_itself_as_plain_tensorflow_does(
    flavour, stored, live, tmp_path
) -> None:
    found = []
    for saver in (tf.train, tfckpt):
        path = str(tmp_path / f"{saver.__name__}-ckpt")
        saver.Checkpoint(**models(flavour, stored, 7)).write(path)
        now = models(flavour, live, 0)
        saver.Checkpoint(**now).read(path).expect_partial()
        found.append(values(now))
    assert found[0] == found[1]


@pytest.mark.parametrize("live", ["model ema", "student other"])
def test_a_lone_model_lands_on_none_of_several_of_other_keywords(flavour, live, tmp_path) -> None:
    path = tfckpt.Checkpoint(**models(flavour, "teacher", 7)).write(str(tmp_path / "ckpt"))
    now = models(flavour, live, 0)
    with pytest.raises(tfckpt.TfckptError):
        tfckpt.Checkpoint(**now).read(path).assert_nontrivial_match()
    assert list(values(now).values()) == [0, 1]


def test_a_lone_model_is_not_taken_for_one_that_was_saved_beside_model(flavour, tmp_path) -> None:
    saved = {"model": filled(stack(flavour, "z"), 7.0), "ema": filled(stack(flavour, "a"), 8.0)}
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    now = filled(stack(flavour, "a"), 0.0)
    with pytest.raises(tfckpt.RefusedError):
        tfckpt.Checkpoint(student=now).read(path)
    assert not any(weight.any() for weight in now.get_weights())


def whole(k: Any) -> Any:
    """A model around another one, which has layers of the same names and shapes."""
    backbone = stack(k, None, None)
    model = stack(k, k.layers.Dense(3), backbone, k.layers.Dense(3))
    model.backbone = backbone
    return filled(model)


@WRITERS
def test_a_part_that_was_saved_beside_its_whole_is_found_by_its_keyword(
    flavour, writer, tmp_path
) -> None:
    """TensorFlow follows the keyword, although the whole is called as a lone model is."""
    old = whole(flavour)
    part = {"backbone": old.backbone}
    theirs, dropped, declared = (whole(flavour) for _ in range(3))
    for saved in ({"model": old, **part}, {"net": old, **part}, {"root": old}, part):
        path = writer.Checkpoint(**saved).write(str(tmp_path / "-".join(saved)))
        for model in (theirs, dropped, declared):
            filled(model, 0.0)
        tf.train.Checkpoint(backbone=theirs.backbone).read(path).expect_partial()
        tfckpt.Checkpoint(backbone=dropped.backbone).read(path).assert_existing_objects_matched()
        policy = {"api": "read", "on_unexpected": "ignore"}
        tfckpt.restore(path, policy=policy, backbone=declared.backbone)
        for new in (dropped, declared):
            same(new.get_weights(), theirs.get_weights())
