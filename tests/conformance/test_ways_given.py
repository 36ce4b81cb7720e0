"""One model, given in one way and restored in another; layers of other people's libraries."""

from __future__ import annotations

from itertools import product

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.models import called, in_turn, net, stack, wired
from zoo.optimizers import compiled
from zoo.values import equal, fill
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.live.inventory import collect

ROW = (4,)
BATCH = np.ones((2, 4), "float32")
either_writer = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tf", "tfckpt"])


def layers(k):
    return stack(k, k.layers.Dense(5), k.layers.Dense(2, name="head"), shape=ROW)


def subclassed(k):
    encoder, decoder = lambda: stack(k, k.layers.Dense(5), shape=ROW), lambda: k.layers.Dense(2)
    return called(in_turn(k.Model, encoder=encoder, decoder=decoder)(), BATCH)


WAYS = {
    "root": lambda m: ((m,), {}),
    "model": lambda m: ((), {"model": m}),
    "net": lambda m: ((), {"net": m}),
    "model, optimizer": lambda m: ((), {"optimizer": m.optimizer, "model": m}),
    "net, opt": lambda m: ((), {"net": m, "opt": m.optimizer}),
    "root, opt": lambda m: ((m,), {"opt": m.optimizer}),
}


def state(model):
    live = collect({"model": model})
    seen = {n: e for n, e in live.inventory.entries.items() if e.role not in ("seed", "metric")}
    return {name: inner(live.variables[name]).numpy() for name in seen}


@pytest.mark.parametrize("make", [layers, subclassed])
@pytest.mark.parametrize(
    ("writer", "reader"), [(tf_keras, keras), (keras, tf_keras), (tf_keras, tf_keras)]
)
def test_a_model_is_the_same_however_it_was_given(writer, reader, make, tmp_path):
    plain = make(writer), make(reader)
    solved = tuple(compiled(make(k), k.optimizers.Adam()) for k in (writer, reader))
    for (source, target), count in ((plain, 3), (solved, len(WAYS))):
        more = source.optimizer.variables if writer is keras and source is solved[0] else []
        distinguish(source.weights + more)
        paths, ways = [], [*WAYS.values()][:count]
        for number, (args, keywords) in enumerate(give(source) for give in ways):
            checkpoint = tf.train.Checkpoint(*args, **keywords)
            paths.append(checkpoint.write(str(tmp_path / f"{count}-{number}")))
        if writer is tf_keras:
            paths += [str(tmp_path / f"{kind}{count}") for kind in ("weights", "SavedModel")]
            source.save_weights(paths[-2])
            source.save(paths[-1], save_format="tf")
        wanted = state(source)
        for (at, path), turn in product(enumerate(paths), (1, 2)):
            give = ways[(at + turn) % count]
            distinguish(inner(v) for v in reversed(target.weights))
            args, keywords = give(target)
            tfckpt.Checkpoint(*args, **keywords).read(path).assert_existing_objects_matched()
            np.testing.assert_equal(state(target), wanted, path)


def test_a_part_of_a_model_is_found_by_its_keyword_and_a_part_in_a_whole(flavour, tmp_path):
    source = subclassed(tf_keras)
    for number, (stored, live) in enumerate((("encoder", "model"), ("model", "encoder"))):
        fill(number, source)
        target = subclassed(flavour)
        whole = tf.train.Checkpoint(source), tf.train.Checkpoint(encoder=source.encoder)
        path = whole[stored == "encoder"].write(str(tmp_path / stored))
        theirs = {"model": target, "encoder": target.encoder}
        tfckpt.Checkpoint(**{live: theirs[live]}).read(path).expect_partial()
        assert equal(target.encoder, source.encoder)


def test_two_models_of_a_file_are_not_taken_for_one(flavour, tmp_path):
    pair = {"generator": layers(tf_keras), "discriminator": layers(tf_keras)}
    path = tf.train.Checkpoint(**pair).write(str(tmp_path / "ckpt"))
    target = layers(flavour)
    with pytest.raises(tfckpt.RefusedError, match="discriminator/"):
        tfckpt.Checkpoint(model=target).read(path)
    rename = [{"checkpoint": "generator/**", "model": "model/**"}]
    tfckpt.restore(path, model=target, rename=rename, exclude_checkpoint=["discriminator/**"])
    assert equal(target, pair["generator"])


# As KerasHub's TransformerDecoder has it; names that Keras uses in functional models alone; one for
# something that is no layer.
ATTRIBUTES = ["_self_attention_layer", "_functional", "_operations", "_nodes", "_random_generator"]


def decoder(k, attribute):
    class Decoder(k.layers.Layer):
        def build(self, shape):
            setattr(self, attribute, k.layers.MultiHeadAttention(2, 2, name="self_attention"))
            self._norm = k.layers.LayerNormalization()
            getattr(self, attribute)(tf.ones((1, 3, 4)), tf.ones((1, 3, 4)))
            self._norm.build(shape)
            self.built = True

        def call(self, x):
            return self._norm(x + getattr(self, attribute)(x, x))

    return wired(k, *(Decoder(name=f"transformer_layer_{n}") for n in range(2)), shape=(3, 4))


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_layer_is_found_whatever_attribute_holds_it(flavour, attribute, tmp_path):
    old, new = fill(1, decoder(flavour, attribute)), decoder(flavour, attribute)
    for writer in (tf.train, tfckpt):
        path = writer.Checkpoint(model=old).write(str(tmp_path / writer.__name__))
        for restore in (
            lambda p: tf.train.Checkpoint(model=new).read(p).assert_existing_objects_matched(),
            lambda p: tfckpt.Checkpoint(model=new).read(p).assert_consumed(),
            lambda p: tfckpt.restore(p, model=new),
        ):
            fill(2, new)
            restore(path)
            assert equal(old, new)


@either_writer
def test_what_a_layer_does_to_its_variables_when_it_loads_is_undone(writer, tmp_path):
    """KerasHub's DINOv2 computes its position embeddings anew as it saves and loads itself."""

    class Embeddings(keras.layers.Layer):
        def build(self, shape):
            self.positions = self.add_weight(shape=(4,), name="positions")
            self.interpolated = self.add_weight(shape=(2,), name="interpolated")

        def call(self, x):
            return x + self.interpolated

        def load_own_variables(self, store):
            super().load_own_variables(store)
            self.interpolated.assign(self.positions[::2])

    old, new = (fill(seed, stack(keras, Embeddings(), shape=(2,))) for seed in (1, 2))
    path = writer.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=new).read(path).assert_consumed()
    assert equal(old, new)


def test_a_layer_that_does_not_load_what_it_saves_has_its_values(tmp_path, caplog):
    class Legacy(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(2,), name="scale")

        def call(self, x):
            return x * self.scale

        def load_own_variables(self, store):
            self.scale.assign([7.0, 7.0])
            self.scale.assign(store["w"])

    def model():
        own = (Legacy(name=name) for name in ("first", "second"))
        return stack(keras, next(own), keras.layers.Dense(2), next(own), shape=(2,))

    old, new = fill(1, model()), fill(2, model())
    path = tfckpt.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=new).read(path).assert_consumed()
    assert equal(old, new)
    for name in ("first", "second"):
        assert (
            f"the variables of the layer '{name}' were restored, but what it computes from them "
            "may be out of date, because its own loading raised KeyError: 'w'"
        ) in caplog.text


def two(k, *attributes, variables=False):
    """A model with an equal layer, or variable, on each attribute."""

    def parts():
        if variables:
            return {name: tf.Variable(tf.zeros((3, 3))) for name in attributes}
        return {name: k.layers.Dense(3, use_bias=False) for name in attributes}

    def call(self, x):
        for attribute in attributes:
            each = getattr(self, attribute)
            x = x @ each if variables else each(x)
        return x

    return called(net(k.Model, parts, call)())


def kernels(model, attributes):
    return [getattr(part, "kernel", part) for part in (getattr(model, a) for a in attributes)]


@pytest.mark.parametrize(
    "change",
    [
        *("_head head > _head", "_head head > head", "_head > _head head", "head > _head head"),
        *("_head > head", "head > _head", "_head > _head"),
    ],
)
def test_an_underscore_makes_another_attribute(flavour, change, tmp_path):
    """Plain TensorFlow takes `_head` for `_head` alone."""
    before, after = (side.split() for side in change.split(" > "))
    for variables, writer in product((False, True), (tf.train, tfckpt)):
        old = two(flavour, *before, variables=variables)
        for number, part in enumerate(kernels(old, before)):
            part.assign(tf.fill((3, 3), number + 1.0))
        path = writer.Checkpoint(model=old).write(str(tmp_path / f"{writer.__name__}{variables}"))
        theirs, new = (two(flavour, *after, variables=variables) for _ in range(2))
        for part in kernels(theirs, after) + kernels(new, after):
            part.assign(tf.zeros((3, 3)))
        tf.train.Checkpoint(model=theirs).read(path).expect_partial()
        ignored = dict.fromkeys(("on_missing", "on_unexpected"), "ignore")
        tfckpt.restore(path, model=new, policy={**ignored, "allow_empty": True})
        for one, other in zip(kernels(theirs, after), kernels(new, after), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_an_attribute_that_has_become_private_is_said_and_a_rule_settles_it(flavour, tmp_path):
    path = tfckpt.Checkpoint(model=two(flavour, "head")).write(str(tmp_path / "ckpt"))
    new = two(flavour, "_head")
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model=new)
    assert (
        "model/head has a leading underscore in only one of the checkpoint and the model; if it is "
        "the same attribute, map it with `rename`"
    ) in " ".join(str(refused.value).split())
    rule = {"checkpoint": "model/head/**", "model": "model/head/**"}
    tfckpt.restore(path, model=new, rename=[rule])


def encoders(k):
    """Model Garden's BertEncoder and BertEncoderV2: one functional, the other a layer.

    Both have what a file needs on attributes of the same names, and layers of other names.
    """

    def parts(prefix):
        return {
            "_embedding_layer": k.layers.Embedding(9, 4, name=f"{prefix}_words"),
            "_embedding_norm_layer": k.layers.LayerNormalization(name=f"{prefix}_norm"),
            "_first": k.layers.Dense(4, name=f"{prefix}_0"),
        }

    def call(self, x):
        return self._first(self._embedding_norm_layer(self._embedding_layer(x["words"])))

    class Old(k.Model):
        def __init__(self):
            holder = type("Holder", (), parts("old"))
            inputs = {"words": k.Input((3,), dtype="int32", name="words")}
            super().__init__(inputs, call(holder, inputs))
            for attribute in parts(""):
                setattr(self, attribute, getattr(holder, attribute))

    return fill(1, Old()), net(k.layers.Layer, lambda: parts("new"), call)()


@either_writer
def test_a_layer_that_was_never_called_is_built_as_the_refusal_says(flavour, writer, tmp_path):
    """TensorFlow restores Model Garden's BertEncoder into a BertEncoderV2 when that is called."""
    batch = {"words": np.array([[1, 2, 3]], "int32")}
    spec = {"words": {"shape": [None, 3], "dtype": "int32"}}
    for keyword in ("encoder", "model"):
        old, new = encoders(flavour)
        path = writer.Checkpoint(encoder=old).write(str(tmp_path / keyword))
        with pytest.raises(tfckpt.NotBuiltError, match="input spec under `build:`"):
            tfckpt.restore(path, encoder=new)
        tfckpt.restore(path, encoder=new, build={keyword: spec})
        np.testing.assert_allclose(np.array(new(batch)), np.array(old(batch)), rtol=1e-6)
