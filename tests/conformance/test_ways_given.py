"""One model, given in one way and restored in another; layers of other people's libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.optimizers import compiled
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.live.inventory import collect

if TYPE_CHECKING:
    from collections.abc import Callable


BATCH = np.ones((2, 4), "float32")


def stack(k: Any) -> Any:
    layers = [k.layers.Dense(5), k.layers.Dense(2, name="head")]
    return k.Sequential([k.Input((4,)), *layers])


def subclassed(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = k.Sequential([k.Input((4,)), k.layers.Dense(5)])
            self.decoder = k.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

    model = Net()
    model(BATCH)
    return model


Given = tuple[tuple[Any, ...], dict[str, Any]]
PLAIN: dict[str, Callable[[Any], Given]] = {
    "root": lambda m: ((m,), {}),
    "model": lambda m: ((), {"model": m}),
    "net": lambda m: ((), {"net": m}),
}
SOLVED: dict[str, Callable[[Any], Given]] = {
    "model, optimizer": lambda m: ((), {"optimizer": m.optimizer, "model": m}),
    "net, opt": lambda m: ((), {"net": m, "opt": m.optimizer}),
    "root, opt": lambda m: ((m,), {"opt": m.optimizer}),
}


def made(make: Any, k: Any, solved: bool) -> Any:
    model = make(k)
    return compiled(model, k.optimizers.Adam()) if solved else model


def state(model: Any) -> dict[str, Any]:
    live = collect({"model": model})
    seen = {n: e for n, e in live.inventory.entries.items() if e.role not in ("seed", "metric")}
    return {name: inner(live.variables[name]).numpy() for name in seen}


@pytest.mark.parametrize("solved", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("make", [stack, subclassed])
@pytest.mark.parametrize(
    ("writer", "reader"), [(tf_keras, keras), (keras, tf_keras), (tf_keras, tf_keras)]
)
def test_a_model_is_the_same_however_it_was_given(writer, reader, make, solved, tmp_path) -> None:
    source, target = made(make, writer, solved), made(make, reader, solved)
    distinguish(source.weights + (source.optimizer.variables if writer is keras and solved else []))
    ways = PLAIN | (SOLVED if solved else {})
    paths = {}
    for name, given in ways.items():
        args, keywords = given(source)
        paths[name] = tf.train.Checkpoint(*args, **keywords).write(str(tmp_path / name))
    if writer is tf_keras:
        paths["save_weights"] = str(tmp_path / "weights")
        source.save_weights(paths["save_weights"])
        source.save(str(tmp_path / "saved"), save_format="tf")
        paths["SavedModel"] = str(tmp_path / "saved")
    wanted = state(source)
    for path in paths.values():
        for given in ways.values():
            distinguish(inner(v) for v in reversed(target.weights))
            args, keywords = given(target)
            tfckpt.Checkpoint(*args, **keywords).read(path).assert_existing_objects_matched()
            found = state(target)
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                np.testing.assert_array_equal(found[name], value, f"{path}: {name}")


def test_a_part_of_a_model_is_found_by_its_keyword(flavour, tmp_path) -> None:
    source, target = subclassed(tf_keras), subclassed(flavour)
    path = tf.train.Checkpoint(encoder=source.encoder).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).expect_partial()
    for found, wanted in zip(target.encoder.weights, source.encoder.weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))


def test_a_part_is_restored_out_of_a_whole_model(flavour, tmp_path) -> None:
    source, target = subclassed(tf_keras), subclassed(flavour)
    path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(encoder=target.encoder).read(path).expect_partial()
    for found, wanted in zip(target.encoder.weights, source.encoder.weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))


def test_two_models_of_a_file_are_not_taken_for_one(flavour, tmp_path) -> None:
    pair = {"generator": stack(tf_keras), "discriminator": stack(tf_keras)}
    path = tf.train.Checkpoint(**pair).write(str(tmp_path / "ckpt"))
    target = stack(flavour)
    with pytest.raises(tfckpt.RefusedError, match="discriminator/"):
        tfckpt.Checkpoint(model=target).read(path)
    rename = [{"checkpoint": "generator/**", "model": "model/**"}]
    policy = {"api": "read", "rename": rename, "exclude_checkpoint": ["discriminator/**"]}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    tfckpt.restore(config, model=target)
    for found, wanted in zip(target.weights, pair["generator"].weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))


def trained(model: Any, optimizer: Any) -> Any:
    """By a step of its own: tf_keras's optimizers tell their class in the names they make then."""
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(BATCH, np.ones((2, 2)), verbose=0)
    return model


@pytest.mark.parametrize("writer", [keras, tf_keras])
def test_an_optimizer_of_another_class_is_refused(writer, flavour, tmp_path) -> None:
    source = trained(stack(writer), writer.optimizers.Nadam())
    target = compiled(stack(flavour), flavour.optimizers.Adam())
    path = tf.train.Checkpoint(model=source).write(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.RefusedError, match="'nadam' in the"):
        tfckpt.Checkpoint(model=target).read(path)


# As KerasHub's TransformerDecoder has it; names that Keras uses in functional models alone; one for
# something that is no layer.
ATTRIBUTES = ["_self_attention_layer", "_functional", "_operations", "_nodes", "_random_generator"]
WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


def decoder(k: Any, attribute: str) -> Any:
    class Decoder(k.layers.Layer):
        def build(self, shape: Any) -> None:
            setattr(self, attribute, k.layers.MultiHeadAttention(2, 2, name="self_attention"))
            self._norm = k.layers.LayerNormalization()
            getattr(self, attribute)(tf.ones((1, 3, 4)), tf.ones((1, 3, 4)))
            self._norm.build(shape)
            self.built = True

        def call(self, x: Any) -> Any:
            return self._norm(x + getattr(self, attribute)(x, x))

    inputs = k.Input((3, 4))
    x = inputs
    for index in range(2):
        x = Decoder(name=f"transformer_layer_{index}")(x)
    return k.Model(inputs, x)


def filled(model: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(random.normal(size=variable.shape))
    return model


@WRITERS
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_layer_is_found_whatever_attribute_holds_it(flavour, attribute, writer, tmp_path) -> None:
    old = filled(decoder(flavour, attribute), 1)
    path = writer.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    theirs, dropped, declared = (filled(decoder(flavour, attribute), seed) for seed in (2, 3, 4))
    tf.train.Checkpoint(model=theirs).read(path).assert_existing_objects_matched()
    tfckpt.Checkpoint(model=dropped).read(path).assert_consumed()
    tfckpt.restore(path, model=declared, policy={"api": "read"})
    for new in (theirs, dropped, declared):
        for one, other in zip(old.weights, new.weights, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@WRITERS
def test_what_a_layer_does_to_its_variables_when_it_loads_is_undone(writer, tmp_path) -> None:
    """KerasHub's DINOv2 computes its position embeddings anew as it saves and loads itself."""

    class Embeddings(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.positions = self.add_weight(shape=(4,), name="positions")
            self.interpolated = self.add_weight(shape=(2,), name="interpolated")

        def call(self, x: Any) -> Any:
            return x + self.interpolated

        def load_own_variables(self, store: Any) -> None:
            super().load_own_variables(store)
            self.interpolated.assign(self.positions[::2])

    def model() -> Any:
        return keras.Sequential([keras.Input((2,)), Embeddings()])

    old, new = filled(model(), 1), model()
    path = writer.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=new).read(path).assert_consumed()
    for one, other in zip(old.weights, new.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_layer_that_does_not_load_what_it_saves_has_its_values(tmp_path, caplog) -> None:
    class Legacy(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(2,), name="scale")

        def call(self, x: Any) -> Any:
            return x * self.scale

        def load_own_variables(self, store: Any) -> None:
            self.scale.assign([7.0, 7.0])
            self.scale.assign(store["w"])

    def model() -> Any:
        layers = [Legacy(name="first"), keras.layers.Dense(2), Legacy(name="second")]
        return keras.Sequential([keras.Input((2,)), *layers])

    old, new = filled(model(), 1), model()
    path = tfckpt.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=new).read(path).assert_consumed()
    for one, other in zip(old.weights, new.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for name in ("first", "second"):
        assert (
            f"the variables of the layer '{name}' were restored, but what it computes from them "
            "may be out of date, because its own loading raised KeyError: 'w'"
        ) in caplog.text


def two(k: Any, *attributes: str, variables: bool = False) -> Any:
    """A model with an equal layer, or variable, on each attribute."""

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            for attribute in attributes:
                if variables:
                    value = tf.Variable(tf.zeros((3, 3)))
                else:
                    value = k.layers.Dense(3, use_bias=False)
                setattr(self, attribute, value)

        def call(self, x: Any) -> Any:
            for attribute in attributes:
                each = getattr(self, attribute)
                x = x @ each if variables else each(x)
            return x

    model = Net()
    model(tf.ones((1, 3)))
    return model


def parts(model: Any, *attributes: str) -> dict[str, Any]:
    found = {each: getattr(model, each) for each in attributes}
    return {n: getattr(each, "kernel", each) for n, each in found.items()}


@WRITERS
@pytest.mark.parametrize("variables", [False, True], ids=["layers", "variables"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["_head", "head"], ["_head"]),
        (["_head", "head"], ["head"]),
        (["_head"], ["_head", "head"]),
        (["head"], ["_head", "head"]),
        (["_head"], ["head"]),
        (["head"], ["_head"]),
        (["_head"], ["_head"]),
    ],
    ids=str,
)
def test_an_underscore_makes_another_attribute(
    flavour, before, after, variables, writer, tmp_path
) -> None:
    """Plain TensorFlow takes `_head` for `_head` alone."""
    old = two(flavour, *before, variables=variables)
    for number, part in enumerate(parts(old, *before).values()):
        part.assign(tf.fill((3, 3), number + 1.0))
    path = writer.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    theirs, new = (two(flavour, *after, variables=variables) for _ in range(2))
    for model in (theirs, new):
        for part in parts(model, *after).values():
            part.assign(tf.zeros((3, 3)))
    tf.train.Checkpoint(model=theirs).read(path).expect_partial()
    policy = {"api": "read", "on_missing": "ignore", "on_unexpected": "ignore"}
    tfckpt.restore(path, model=new, policy={**policy, "allow_empty": True})
    for one, other in zip(parts(theirs, *after).values(), parts(new, *after).values(), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_an_attribute_that_has_become_private_is_said_and_a_rule_settles_it(
    flavour, tmp_path
) -> None:
    path = tfckpt.Checkpoint(model=two(flavour, "head")).write(str(tmp_path / "ckpt"))
    new = two(flavour, "_head")
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model=new, policy={"api": "read"})
    assert (
        "model/head has a leading underscore in only one of the checkpoint and the model; if it is "
        "the same attribute, map it with `rename`"
    ) in " ".join(str(refused.value).split())
    rule = {"checkpoint": "model/head/**", "model": "model/head/**"}
    tfckpt.restore(path, model=new, policy={"api": "read", "rename": [rule]})


def encoders(k: Any) -> tuple[Any, Any]:
    """Model Garden's BertEncoder and BertEncoderV2: one functional, the other a layer.

    Both have what a file needs on attributes of the same names, and layers of other names.
    """

    def parts(owner: Any, prefix: str) -> None:
        dense = k.layers.Dense
        owner._embedding_layer = k.layers.Embedding(9, 4, name=f"{prefix}_words")
        owner._embedding_norm_layer = k.layers.LayerNormalization(name=f"{prefix}_norm")
        owner._first, owner._second = (dense(4, name=f"{prefix}_{n}") for n in range(2))

    def called(owner: Any, x: Any) -> Any:
        x = owner._embedding_norm_layer(owner._embedding_layer(x["words"]))
        return owner._second(owner._first(x))

    class Old(k.Model):
        def __init__(self) -> None:
            holder = type("Holder", (), {})()
            parts(holder, "old")
            inputs = {"words": k.Input((3,), dtype="int32", name="words")}
            super().__init__(inputs, called(holder, inputs))
            for attribute, layer in vars(holder).items():
                setattr(self, attribute, layer)

    class New(k.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            parts(self, "new")

        def call(self, x: Any) -> Any:
            return called(self, x)

    return filled(Old(), 1), New()


@WRITERS
@pytest.mark.parametrize("keyword", ["encoder", "model"])
def test_a_layer_that_was_never_called_is_built_as_the_refusal_says(
    flavour, keyword, writer, tmp_path
) -> None:
    """TensorFlow restores Model Garden's BertEncoder into a BertEncoderV2 when that is called."""
    batch = {"words": np.array([[1, 2, 3]], "int32")}
    old, new = encoders(flavour)
    path = writer.Checkpoint(encoder=old).write(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.NotBuiltError, match="input spec under `build:`"):
        tfckpt.restore(path, encoder=new, policy={"api": "read"})
    spec = {"words": {"shape": [None, 3], "dtype": "int32"}}
    tfckpt.restore(path, encoder=new, policy={"api": "read", "build": {keyword: spec}})
    np.testing.assert_allclose(np.array(new(batch)), np.array(old(batch)), rtol=1e-6)
