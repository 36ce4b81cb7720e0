"""The checkpoint does not fit the model: its names, its optimizer, its build are not the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from mistakes.scene import compiled, digits, fit, values, written

import tfckpt
import tfckpt.callbacks


def policy(text: str, source: str = "directory: runs/digits") -> str:
    return written(f"version: 1\nrestore:\n  {source}\n  policy: {{{text}}}\n")


def test_11_a_selector_without_the_keyword(run3, model, refused) -> None:
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("exclude: ['head/**']"), model=model)
    seen.ends_with(r"head/\*\*' matches nothing", "did you mean .*model/head/")


def test_12_a_selector_as_keras_spells_it(run3, model, refused) -> None:
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("exclude: ['sequential/head/kernel:0']"), model=model)
    seen.ends_with("matches nothing", "model/head/kernel")


def subclassed(keras: Any) -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.body = keras.layers.Dense(8, name="body")
            self.head = keras.layers.Dense(3, name="head")

        def call(self, x: Any) -> Any:
            return self.head(self.body(x))

    return Net()


def test_14_a_subclassed_model_that_was_never_called(run, flavour, refused) -> None:
    model = subclassed(flavour)
    with refused(model, error=tfckpt.NotBuiltError) as seen:
        tfckpt.restore(policy("include: ['model/**']"), model=model)
    seen.says("call the model once on a batch", r"model\(")


def other(keras: Any) -> Any:
    layers = [keras.layers.Dense(3, name="stem"), keras.layers.Dense(7, name="logits")]
    return compiled(keras, keras.Sequential([keras.Input((5,)), *layers]))


def test_15_another_model(keras, run3, refused) -> None:
    model = other(keras)
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("include: ['model/**']"), model=model)
    seen.ends_with("no value would be restored", lines=20)
    # One bias that has by chance as many elements as another says nothing of the layers.
    seen.never_says("rename: .*model/head/.*model/stem/")


def test_16_another_model_that_is_called_partial(keras, run3, refused) -> None:
    model = other(keras)
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("expect_partial: true"), model=model)
    seen.ends_with("no value would be restored", lines=20)


def test_32_a_model_that_is_not_compiled(run, flavour, refused, told) -> None:
    model = digits(flavour, optimizer=None)
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("on_unexpected: error"), model=model)
    seen.ends_with("optimizer", "compile", r"include: \[.?model/\*\*.?\]", lines=20)
    with told() as seen:
        tfckpt.restore(policy(""), model=model)
    seen.says("only in the checkpoint, since the model has no such optimizer")


def test_66_weights_of_a_compiled_model_into_a_compiled_model(keras, model, told) -> None:
    trained = digits(keras)
    fit(trained, epochs=1)
    trained.save_weights("d.weights.h5")
    with told() as seen:
        print(tfckpt.restore(policy("include: ['model/**']", "path: d.weights.h5"), model=model))
    seen.says("LOADED", "model/head/kernel")
    np.testing.assert_equal(values(model)[:4], values(trained)[:4])


def test_67_layers_that_are_unfrozen(run3, flavour, refused) -> None:
    frozen = digits(flavour, optimizer=None)
    frozen.layers[0].trainable = False
    compiled(flavour, frozen)
    fit(frozen, tfckpt.callbacks.resume(frozen, "runs/frozen", verbose=0), epochs=1)
    model = digits(flavour)
    with refused(model, error=tfckpt.RefusedError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/frozen"), epochs=2)
    seen.ends_with("optimizer/.*body/kernel", "optimizer: reset", lines=20)


def test_68_another_optimizer(keras, run3, refused) -> None:
    model = digits(keras, optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy(""), model=model)
    seen.ends_with("'sgd'|SGD", "'adam'|Adam", "optimizer: reset", lines=20)


def test_69_a_layer_that_is_renamed(keras, run3, refused) -> None:
    model = digits(keras, body="stem")
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("include: ['model/**']"), model=model)
    seen.ends_with(
        r'rename: \[\{checkpoint: "model/body/\*\*", model: "model/stem/\*\*"\}\]', lines=20
    )


def test_70_a_sequential_without_an_input(flavour, told) -> None:
    """`fit` builds it, and so it does before it resumes."""

    def build() -> Any:
        flavour.utils.set_random_seed(3)
        layers = [flavour.layers.Dense(8, name="body"), flavour.layers.Dense(3, name="head")]
        return compiled(flavour, flavour.Sequential(layers))

    whole = build()
    fit(whole, epochs=2)
    model = build()
    fit(model, tfckpt.callbacks.resume(model, "runs/unbuilt", verbose=0), epochs=1)
    again = build()
    with told() as seen:
        fit(again, tfckpt.callbacks.resume(again, "runs/unbuilt"), epochs=2)
    seen.says("restored runs/unbuilt/ckpt-1", "training resumes after 1 epoch")
    np.testing.assert_equal(again.get_weights(), whole.get_weights())
