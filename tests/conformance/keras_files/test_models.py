"""Models of every kind in every format: tfckpt restores what Keras's own loader loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from zoo.keras_savers import FORMATS, equal, fill, restore, save
from zoo.models import IN_FLAVOUR

if TYPE_CHECKING:
    from collections.abc import Callable

# What Keras's files do not hold: LoRA's matrices (merged), what a tf.Module has, a lookup's table.
PARTLY = ("low_rank", "module_in_layer", "text")
# Keras stores weights that two layers share twice, and a file of Keras 2 does not tell that.
SHARED = {"shared": (".h5",)}
WHOLE = [pair for pair in IN_FLAVOUR if pair[1] not in PARTLY]


@pytest.mark.parametrize(("flavour", "build"), WHOLE, indirect=True)
def test_what_keras_loads_is_restored(
    flavour: Any, build: Callable[[Any], Any], tmp_path: Path
) -> None:
    written = build(flavour)
    fill(written, 1)
    for suffix in FORMATS:
        if suffix in SHARED.get(build.__name__, ()):
            continue
        path = save(written, tmp_path, suffix)
        loaded, restored = build(flavour), build(flavour)
        fill(loaded, 2)
        fill(restored, 3)
        loaded.load_weights(path)

        restore(path, restored)

        assert equal(loaded, restored), suffix
        assert equal(written, restored), suffix


def images(k: Any) -> Any:
    layers = k.layers
    return k.Sequential(
        [
            k.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same"),
            layers.Conv2DTranspose(4, 3, padding="same"),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.SeparableConv2D(4, 3, padding="same"),
            layers.BatchNormalization(),
            layers.GroupNormalization(2),
            layers.PReLU(),
            layers.Reshape((1, 8, 8, 4)),
            layers.Conv3D(2, 1),
            layers.Conv3DTranspose(2, 1),
            layers.ConvLSTM2D(2, 3),
            layers.Conv2D(2, 1, name="chosen"),
            layers.BatchNormalization(scale=False),
        ]
    )


def sequences(k: Any) -> Any:
    layers = k.layers
    cells = [layers.LSTMCell(4), layers.GRUCell(4)]
    return k.Sequential(
        [
            k.Input((6,), dtype="int32"),
            layers.Embedding(9, 4),
            layers.Conv1D(4, 3, padding="same"),
            layers.Conv1DTranspose(4, 3, padding="same"),
            layers.SeparableConv1D(4, 3, padding="same"),
            layers.DepthwiseConv1D(3, padding="same"),
            layers.LSTM(4, return_sequences=True),
            layers.GRU(4, return_sequences=True, reset_after=False),
            layers.GRU(4, return_sequences=True),
            layers.RNN(cells, return_sequences=True),
            layers.Bidirectional(layers.LSTM(2, return_sequences=True)),
            layers.TimeDistributed(layers.Dense(4)),
            layers.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d"),
            layers.LayerNormalization(),
            layers.SimpleRNN(4, return_sequences=True),
            layers.Reshape((6, 2, 2)),
            layers.ConvLSTM1D(2, 1),
            layers.Normalization(axis=None, mean=1.0, variance=2.0),
            layers.Dense(2, use_bias=False),
        ]
    )


def attention(k: Any) -> Any:
    x = k.Input((4, 8))
    y = k.layers.MultiHeadAttention(2, 4)(x, x)
    inner = k.Sequential([k.Input((4, 8)), k.layers.Dense(8), k.layers.Dense(8)], name="inner")
    return k.Model(x, k.layers.Dense(1)(inner(k.layers.LayerNormalization()(y))))


@pytest.mark.parametrize("build", [images, sequences, attention], ids=lambda f: f.__name__)
def test_a_file_of_one_keras_goes_into_the_other(
    build: Callable[[Any], Any], flavour: Any, tmp_path: Path
) -> None:
    other = pytest.importorskip("tf_keras" if flavour.__name__ == "keras" else "keras")
    written = build(flavour)
    fill(written, 1)
    for suffix in FORMATS:
        path = save(written, tmp_path, suffix)
        restored = build(other)
        fill(restored, 2)

        restore(path, restored)

        assert equal(written, restored), suffix


def test_shards_are_read_together(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    written, restored = images(keras), images(keras)
    fill(written, 1)
    fill(restored, 2)
    path = tmp_path / "sharded.weights.json"
    written.save_weights(path, max_shard_size=1e-6)
    assert len(list(tmp_path.glob("*.h5"))) > 1

    restore(str(path), restored)

    assert equal(written, restored)


def test_groups_that_windows_named_are_read(tmp_path: Path) -> None:
    """Some versions of Keras joined groups as Windows joins paths: `layers\\dense` is one name."""
    keras = pytest.importorskip("keras")
    written, restored = images(keras), images(keras)
    fill(written, 1)
    fill(restored, 2)
    written.save_weights(tmp_path / "unix.weights.h5")
    path = tmp_path / "windows.weights.h5"
    with h5py.File(tmp_path / "unix.weights.h5") as unix, h5py.File(path, "w") as windows:

        def copy(name: str, item: Any) -> None:
            holder, _, value = name.rpartition("/vars/")
            if isinstance(item, h5py.Dataset):
                windows[f"{holder.replace('/', chr(92))}/vars/{value}".lstrip("/")] = item[()]

        unix.visititems(copy)
    restore(str(path), restored)
    assert equal(written, restored)


@pytest.mark.parametrize("suffix", FORMATS)
def test_bfloat16_is_restored(flavour: Any, suffix: str, tmp_path: Path) -> None:
    def build(seed: int) -> Any:
        layers = flavour.layers
        mixed = layers.Dense(3, dtype="mixed_bfloat16"), layers.Dense(2, dtype="bfloat16")
        model = flavour.Sequential([flavour.Input((4,)), *mixed])
        model.compile(flavour.optimizers.SGD(momentum=0.9), "mse")
        model.optimizer.build(model.trainable_variables)
        fill(model, seed)
        return model

    written, restored = build(1), build(2)
    for number, variable in enumerate(written.optimizer.variables[2:]):
        variable.assign(np.full(variable.shape, number + 0.5))
    path = save(written, tmp_path, suffix)

    weights_alone = suffix == ".h5" and flavour.__name__ == "tf_keras"
    settings = {"hyperparameters": "config"}
    if weights_alone:
        settings |= {"slots": "reset", "iterations": "reset"}
    restore(path, restored, optimizer=settings)

    assert equal(written, restored)
    pairs = zip(written.optimizer.variables, restored.optimizer.variables, strict=True)
    for one, other in [] if weights_alone else pairs:
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize(
    ("suffix", "called"), [(".keras", "m.h5"), (".weights.h5", "m.keras"), (".h5", "m.safetensors")]
)
def test_a_file_of_another_name_is_what_is_in_it(
    flavour: Any, tmp_path: Path, suffix: str, called: str
) -> None:
    """Keras goes by the suffix: it takes an archive called `.h5` for a damaged HDF5 file."""
    written, restored = images(flavour), images(flavour)
    fill(written, 1)
    fill(restored, 2)
    path = tmp_path / called
    Path(save(written, tmp_path, suffix)).rename(path)
    restore(str(path), restored)
    assert equal(written, restored)
