"""Keras's own files: their values are restored, and where they do not tell it, none is guessed.

What is saved how is in ``zoo/saved.py``; single layers are in ``test_layer_outputs.py``.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from zoo import saved
from zoo.models import dense, stack
from zoo.optimizers import compiled
from zoo.values import FORMATS, equal, fill, read, save, untouched

import tfckpt
from tfckpt.errors import DamagedCheckpointError, RefusedError

SETTINGS = {"hyperparameters": "config"}
RESET = {**SETTINGS, "slots": "reset", "iterations": "reset"}


def chain(k, *names, frozen=None):
    model = fill(2, stack(k, *dense(k, *names)))
    if frozen is not None:
        model.layers[frozen].trainable = False
    return model


CASES = saved.cases()
USUAL = [case for case, usual in CASES.items() if usual]
# The same layout in two ways: of each model one.
LEFT = ((".keras", ".weights.json"), ("directory", ".weights.h5"))


def check(case, kinds=saved.KINDS):
    if case.model.startswith("quantized") and not hasattr(
        keras.layers.Dense, "variable_serialization_spec"
    ):
        pytest.skip("this Keras does not say which values a quantized layer stores")
    found = saved.judge(case, kinds).values()
    unusual = {cell: why for cell, why in found if cell not in case.allowed}
    assert not unusual, unusual


@pytest.mark.parametrize("number", range(len(USUAL)), ids=map(str, USUAL))
def test_what_keras_loads_is_restored(number):
    check(USUAL[number], [kind for kind in saved.KINDS if kind not in LEFT[number // 2 % 2]])


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_keras_loads_is_restored_in_every_state(case):
    check(case)


def images(k):
    conv, norm = k.layers.Conv2D(4, 3, name="chosen"), k.layers.BatchNormalization()
    return stack(k, k.layers.Conv2D(4, 3), conv, norm, shape=(8, 8, 3))


def windows(path, place):
    """Some versions of Keras joined groups as Windows joins paths: `layers\\dense` is one name."""
    with h5py.File(path) as unix, h5py.File(place / "windows.weights.h5", "w") as other:

        def copy(name, item):
            holder, _, value = name.rpartition("/vars/")
            if isinstance(item, h5py.Dataset):
                other[f"{holder.replace('/', chr(92))}/vars/{value}".lstrip("/")] = item[()]

        unix.visititems(copy)
    return str(place / "windows.weights.h5")


def called(name):
    """Keras goes by the suffix: it takes an archive called `.h5` for a damaged HDF5 file."""
    return lambda path, place: str(Path(path).rename(place / name))


@pytest.mark.parametrize(
    ("suffix", "changed"),
    [
        (".weights.h5", windows),
        (".keras", called("m.h5")),
        (".weights.h5", called("m.keras")),
        (".h5", called("m.safetensors")),
    ],
)
def test_a_file_of_another_kind_is_what_is_in_it(flavour, suffix, changed, tmp_path):
    written, restored = fill(1, images(flavour)), fill(2, images(flavour))
    tfckpt.restore(changed(save(written, tmp_path, suffix), tmp_path), restored)
    assert equal(written, restored)


@pytest.mark.parametrize("suffix", FORMATS)
def test_bfloat16_is_restored(flavour, suffix, tmp_path):
    def build(seed):
        layers = flavour.layers
        mixed = layers.Dense(3, dtype="mixed_bfloat16"), layers.Dense(2, dtype="bfloat16")
        model = compiled(stack(flavour, *mixed), flavour.optimizers.SGD(momentum=0.9))
        fill(seed, model)
        return model

    written, restored = build(1), build(2)
    for number, variable in enumerate(written.optimizer.variables[2:]):
        variable.assign(np.full(variable.shape, number + 0.5))
    path = save(written, tmp_path, suffix)
    weights_alone = suffix == ".h5" and flavour is tf_keras
    tfckpt.restore(path, restored, policy={"optimizer": RESET if weights_alone else SETTINGS})
    assert equal(written, restored)
    pairs = zip(written.optimizer.variables, restored.optimizer.variables, strict=True)
    for one, other in [] if weights_alone else pairs:
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


# Refused


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_another_number_of_automatic_layers(flavour, suffix, tmp_path):
    """Keras loads it without a word: the number of all layers is the same."""
    path = save(chain(flavour, None, None), tmp_path, suffix)
    model = fill(1, chain(flavour, "chosen", None))
    with untouched(model), pytest.raises(RefusedError, match=r"SUSPECT|MISSING"):
        tfckpt.restore(path, model)


def test_names_come_before_places(flavour, tmp_path):
    """Keras assigns by place: it would give each of the two the other's values."""
    written, model = fill(1, chain(flavour, "a", "b")), chain(flavour, "b", "a")
    tfckpt.restore(save(written, tmp_path, ".h5"), model)
    for name in "ab":
        np.testing.assert_equal(*(m.get_layer(name).get_weights() for m in (written, model)))


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_layer_inside_another_shifts_no_value(frozen, tmp_path):
    """Keras 2 lists what is frozen last; assigned by place, neighbours would swap their values."""
    written = stack(tf_keras, chain(tf_keras, *[None] * 3, frozen=frozen))
    path = save(written, tmp_path, ".h5")
    for now in (None, 1 - frozen):
        model = stack(tf_keras, chain(tf_keras, *[None] * 3, frozen=now))
        with untouched(model), pytest.raises(RefusedError, match="another order"):
            tfckpt.restore(path, model)
    model = stack(tf_keras, chain(tf_keras, *[None] * 3, frozen=frozen))
    tfckpt.restore(path, model)
    assert equal(written, model)


@pytest.mark.parametrize("suffix", FORMATS)
def test_slots_beside_frozen_layers_go_where_keras_loads_them(flavour, suffix, tmp_path):
    """A whole model's configuration says what was frozen; for weights alone a policy says it."""

    def build(frozen, seed):
        model = compiled(chain(flavour, "a", "b", "c", frozen=frozen), flavour.optimizers.Adam())
        return fill(seed, model, model.optimizer)

    written = build(0, 1)
    path = save(written, tmp_path, suffix)
    if suffix == ".weights.h5":
        with pytest.raises(RefusedError, match=r"(?s)which\s+layers were frozen.*slots: restore"):
            tfckpt.restore(path, build(0, 2))
    for frozen, known in ((0, True), (2, suffix == ".weights.h5" or None), (None, None)):
        model, beside = build(frozen, 2), build(frozen, 2)
        if not known and (flavour is keras or suffix == ".keras"):  # else no slots are in it
            with untouched(model, model.optimizer), pytest.raises(RefusedError, match="slots"):
                tfckpt.restore(path, model, optimizer={"slots": "restore"})
        elif known:
            tfckpt.restore(path, model, optimizer={"slots": "restore"})
            if suffix == ".weights.h5":
                beside.load_weights(path)
                assert all(map(np.array_equal, read(model.optimizer), read(beside.optimizer)))
            elif flavour is keras or suffix == ".keras":
                assert all(map(np.array_equal, read(model.optimizer), read(written.optimizer)))


@pytest.mark.parametrize("suffix", FORMATS)
def test_slots_known_by_index_go_to_no_other_layer(flavour, suffix, tmp_path):
    def build(*names, frozen=False):
        base = stack(flavour, *dense(flavour, *names), name="base")
        base.trainable = not frozen
        head = flavour.layers.Dense(2, name="head")
        return compiled(stack(flavour, base, head), flavour.optimizers.Adam())

    path = save(build("a", "b"), tmp_path, suffix)
    if flavour is keras or suffix == ".keras":  # the others of tf_keras have no names, or no slots
        with pytest.raises(RefusedError, match="another order") as refused:
            tfckpt.restore(path, build("b", "a"))
        assert 'optimizer="reset"' in str(refused.value)
    tfckpt.restore(path, build("b", "a"), policy={"optimizer": "reset"})
    path = save(build("a", "b", frozen=True), tmp_path, suffix)
    report = tfckpt.restore(path, build("a", "b", frozen=True))
    slots = [step for step in report.plan.assignments if step.name.startswith("optimizer/momentum")]
    assert len(slots) == (2 if flavour is keras or suffix != ".h5" else 0)


@pytest.mark.parametrize("attribute", ["layer_names", "weight_names"])
def test_a_list_that_is_gone_is_damage(attribute, tmp_path):
    path = save(chain(tf_keras, "a", "b"), tmp_path, ".h5")
    with h5py.File(path, "a") as file:
        del (file if attribute == "layer_names" else file["b"]).attrs[attribute]
    with pytest.raises(DamagedCheckpointError, match=attribute):
        tfckpt.inspect(path)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_an_empty_file_is_called_so(suffix, tmp_path):
    (tmp_path / f"model{suffix}").touch()
    with pytest.raises(DamagedCheckpointError, match="is an empty file"):
        tfckpt.inspect(str(tmp_path / f"model{suffix}"))
