"""Where Keras's files do not tell whose values they hold, nothing is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import pytest
from zoo.keras_savers import equal, fill, restore, save

from tfckpt.errors import DamagedCheckpointError, RefusedError
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def chain(k: Any, *names: str | None) -> Any:
    layers = [k.layers.Dense(3, name=name) for name in names]
    model = k.Sequential([k.Input((3,)), *layers])
    fill(model, 2)
    return model


def compiled(model: Any, optimizer: Any) -> Any:
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_another_number_of_automatic_layers(flavour: Any, tmp_path: Path, suffix: str) -> None:
    """Keras loads it without a word: the number of all layers is the same."""
    path = save(chain(flavour, None, None), tmp_path, suffix)
    model = chain(flavour, "chosen", None)
    before = model.get_weights()
    with pytest.raises(RefusedError, match=r"SUSPECT|MISSING"):
        restore(path, model)
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def test_names_come_before_places(flavour: Any, tmp_path: Path) -> None:
    """Keras assigns by place: it would give each of the two the other's values."""
    written = chain(flavour, "a", "b")
    fill(written, 1)
    path = save(written, tmp_path, ".h5")
    model = chain(flavour, "b", "a")
    restore(path, model)
    assert (model.get_layer("a").get_weights()[0] == written.get_layer("a").get_weights()[0]).all()
    assert not equal(written, model)


def test_an_optimizer_of_another_class(flavour: Any, tmp_path: Path) -> None:
    optimizers = flavour.optimizers
    written = compiled(chain(flavour, None, None), optimizers.Adam())
    for suffix in (".weights.h5", ".h5", ".keras"):
        path = save(written, tmp_path, suffix)
        model = compiled(chain(flavour, None, None), optimizers.Lion())
        if suffix == ".h5" and flavour.__name__ == "tf_keras":  # weights alone
            restore(path, model, optimizer={"hyperparameters": "config"})
            assert equal(written, model)
            continue
        with pytest.raises(RefusedError):
            restore(path, model, optimizer={"hyperparameters": "config"})
        restore(
            path,
            model,
            on_unexpected="ignore",
            optimizer={"slots": "reset", "iterations": "reset", "hyperparameters": "config"},
        )
        assert equal(written, model)


def test_a_layer_that_was_frozen_shifts_no_slot(tmp_path: Path) -> None:
    """Which layer was frozen is not in the file; every slot has the same shape."""
    keras = pytest.importorskip("keras")
    written = chain(keras, None, None, None)
    written.layers[0].trainable = False
    path = save(compiled(written, keras.optimizers.SGD(momentum=0.9)), tmp_path, ".weights.h5")
    model = chain(keras, None, None, None)
    model.layers[2].trainable = False
    compiled(model, keras.optimizers.SGD(momentum=0.9))
    with pytest.raises(RefusedError):
        restore(path, model)


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_layer_inside_another_shifts_no_value(frozen: int, tmp_path: Path) -> None:
    """Keras 2 lists what is frozen last; assigned by place, neighbours would swap their values."""
    tf_keras = pytest.importorskip("tf_keras")

    def build(*, freeze: bool) -> Any:
        inner = chain(tf_keras, None, None, None)
        inner.layers[frozen].trainable = not freeze
        return tf_keras.Sequential([tf_keras.Input((3,)), inner])

    path = save(build(freeze=True), tmp_path, ".h5")
    for freeze in (False, True):
        model = build(freeze=freeze)
        before = model.get_weights()
        with pytest.raises(RefusedError, match="another order"):
            restore(path, model)
        assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_an_optimizer_that_does_not_train_all_says_what_to_do(suffix: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")

    def build() -> Any:
        model = chain(keras, None, None)
        model.layers[0].trainable = False
        return compiled(model, keras.optimizers.Adam())

    written, model = build(), build()
    fill(written, 1)
    path = save(written, tmp_path, suffix)
    with pytest.raises(RefusedError, match=r"(?s)layers are\s+frozen.*unfreeze.*slots: reset"):
        restore(path, model)
    reset = {"slots": "reset", "iterations": "reset", "hyperparameters": "config"}
    restore(path, model, optimizer=reset, on_unexpected="ignore")
    assert equal(written, model)


@pytest.mark.parametrize("attribute", ["layer_names", "weight_names"])
def test_a_list_that_is_gone_is_damage(attribute: str, tmp_path: Path) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    path = save(chain(tf_keras, "a", "b"), tmp_path, ".h5")
    with h5py.File(path, "a") as file:
        del (file if attribute == "layer_names" else file["b"]).attrs[attribute]
    with pytest.raises(DamagedCheckpointError, match=attribute):
        open_checkpoint(path)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_an_empty_file_is_called_so(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    path.touch()
    with pytest.raises(DamagedCheckpointError, match="is an empty file"):
        open_checkpoint(str(path))
