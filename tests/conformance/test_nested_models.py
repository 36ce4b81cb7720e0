"""A backbone of a file is a model inside of another one, or the other way round.

Its layers have no names of their own. The suggested policy is pasted; what it restores is compared
with the layers of the model that was saved, one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras

import tfckpt


def backbone(keras: Any, name: str = "backbone") -> Any:
    inputs = keras.Input((4,))
    x = keras.layers.Dense(4, activation="relu")(inputs)
    for _ in range(2):
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, keras.layers.Dense(4)(x)]))
    return keras.Model(inputs, x, name=name)


def inside(keras: Any, *models: Any, units: int = 3) -> Any:
    """A model that holds other ones, and a head."""
    inputs = keras.Input((4,))
    outputs = [model(inputs) for model in models]
    x = keras.layers.Concatenate()(outputs) if len(outputs) > 1 else outputs[0]
    return keras.Model(inputs, keras.layers.Dense(units, name="head")(x))


def with_head(keras: Any, units: int) -> Any:
    """All layers beside each other, the last without a name, too."""
    inner = backbone(keras)
    return keras.Model(inner.inputs, keras.layers.Dense(units)(inner.output))


def saved(model: Any, form: str, directory: Any) -> str:
    if form == "tensorflow":
        return tfckpt.Checkpoint(model=model).save(f"{directory}/ckpt")
    model.save_weights(path := f"{directory}/model.weights.h5")
    return path


def refused(path: str, model: Any) -> Any:
    with pytest.raises(tfckpt.RefusedError) as refusal:
        tfckpt.restore(path, model)
    return refusal.value.plan.suggestion


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(one.layers, other.layers, strict=False):
        for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
            np.testing.assert_array_equal(x, y)


# Not the .h5 of tf_keras, which writes its layers in one flat list.
FORMS = [("keras3", "h5"), ("keras3", "tensorflow"), ("tf_keras", "tensorflow")]
each = pytest.mark.parametrize(("flavour", "form"), FORMS, indirect=["flavour"])


@each
@pytest.mark.parametrize("into", [True, False], ids=["into", "out of"])
def test_all_of_one_side_is_a_model_inside_of_the_other(
    flavour: Any, form: str, tmp_path: Any, *, into: bool
) -> None:
    old, new = backbone(flavour), backbone(flavour, "encoder")
    rules = [("model/**", "model/encoder/**"), ("model/backbone/**", "model/**")]
    written, read = (old, inside(flavour, new)) if into else (inside(flavour, old), new)
    path = saved(written, form, tmp_path)
    found = refused(path, read)
    rename = [dict(zip(("checkpoint", "model"), rules[not into], strict=True))]
    left = "exclude" if into else "exclude_checkpoint"
    assert found.changes == {"rename": rename, left: ["model/head/**"]}
    tfckpt.restore(path, read, policy=found.policy)
    assert_same(old, new)


@each
def test_two_models_inside_are_a_question(flavour: Any, form: str, tmp_path: Any) -> None:
    old, one, two = (backbone(flavour, name) for name in ("backbone", "one", "two"))
    path, model = saved(old, form, tmp_path), inside(flavour, one, two)
    found = refused(path, model)
    assert found.policy is None
    assert [answer.words for answer in found.answers] == [
        f"model/{name} is the checkpoint's model" for name in ("one", "two")
    ]
    before = one.get_weights()
    tfckpt.restore(path, model, policy=found.answers[1].suggestion.policy)
    assert_same(old, two)
    assert all(map(np.array_equal, before, one.get_weights()))


@each
@pytest.mark.parametrize("out", [True, False], ids=["out of", "into"])
def test_one_more_layer_without_a_name_goes_by_names(
    flavour: Any, form: str, tmp_path: Any, *, out: bool
) -> None:
    inner, flat = backbone(flavour), with_head(flavour, 5)
    nested = inside(flavour, inner)
    old, new = (nested, flat) if out else (flat, nested)
    path = saved(old, form, tmp_path)
    found = refused(path, new)
    changes = found.answers[0].suggestion.changes if found.choices else found.changes
    tfckpt.restore(path, new, **changes)
    assert_same(inner, flat)


def test_layers_that_were_tied_since_are_not_chosen_between(tmp_path: Path) -> None:
    """Keras 2 lists a layer once for each that holds it, and loads the last one's values."""

    class Block(tf_keras.layers.Layer):
        def __init__(self, inner: Any, **more: Any) -> None:
            super().__init__(**more)
            self.inner = inner

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

    def build(*, tied: bool) -> Any:
        one = tf_keras.layers.Dense(4, name="inner")
        two = one if tied else tf_keras.layers.Dense(4, name="inner")
        inputs = tf_keras.Input((4,))
        outputs = Block(two, name="two")(Block(one, name="one")(inputs))
        return tf_keras.Model(inputs, outputs)

    old, new = build(tied=False), build(tied=True)
    path, same = str(tmp_path / "untied.h5"), str(tmp_path / "tied.h5")
    old.save_weights(path)
    before = new.get_weights()
    with pytest.raises(tfckpt.RestoreError, match="model/two/inner/kernel have different values"):
        tfckpt.restore(path, new)
    assert all(map(np.array_equal, new.get_weights(), before))
    tfckpt.restore(path, new, exclude_checkpoint=["model/two/inner/**"])
    assert all(map(np.array_equal, new.get_weights(), old.get_layer("one").get_weights()))
    new.save_weights(same)
    again = build(tied=True)
    tfckpt.restore(same, again)
    assert all(map(np.array_equal, again.get_weights(), new.get_weights()))
