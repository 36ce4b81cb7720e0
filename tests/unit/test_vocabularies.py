"""Lookups of words: after a restore they look up what they did when they were saved, or refuse.

Neither Keras has a vocabulary in TensorFlow's checkpoints or in ``.weights.h5``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.cli.main import main
from tfckpt.planning import Severity, Status

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = ["red", "green", "blue", "grün"], ["green", "red", "blue", "grün"]
SAMPLE = [["red", "blue", "violet", "green", "grün"]]


def strings(k: Any, words: list[str] | None, **arguments: Any) -> Any:
    return k.layers.StringLookup(vocabulary=words, **arguments)


def adapted(k: Any, words: list[str] | None) -> Any:
    layer = k.layers.StringLookup()
    if words is not None:  # the more often, the sooner
        layer.adapt(tf.constant([word for n, word in enumerate(words[::-1], 1) for _ in range(n)]))
    return layer


def inverse(k: Any, words: list[str] | None) -> Any:
    return strings(k, words, invert=True)


def several_oov(k: Any, words: list[str] | None) -> Any:
    return strings(k, words, num_oov_indices=3, mask_token="")


def hot(k: Any, words: list[str] | None) -> Any:
    return strings(k, words, output_mode="multi_hot")


def vectorize(k: Any, words: list[str] | None) -> Any:
    return k.layers.TextVectorization(vocabulary=words, output_sequence_length=5)


def adapted_text(k: Any, words: list[str] | None) -> Any:
    layer = k.layers.TextVectorization(output_sequence_length=5)
    if words is not None:
        layer.adapt(tf.constant([word for n, word in enumerate(words[::-1], 1) for _ in range(n)]))
    return layer


def integers(k: Any, words: list[str] | None) -> Any:
    known = None if words is None else [OLD.index(word) + 5 for word in words]
    return k.layers.IntegerLookup(vocabulary=known)


def bins(k: Any, words: list[str] | None) -> Any:
    return k.layers.Discretization([0.1, 1.0] if words == OLD else [0.2, 1.0])


LAYERS = [
    strings, adapted, inverse, several_oov, hot, vectorize, adapted_text, integers, bins,
]  # fmt: skip
EMPTY = [layer for layer in LAYERS if layer is not bins]
layers = pytest.mark.parametrize("make", LAYERS, ids=lambda make: make.__name__)
empty_too = pytest.mark.parametrize("make", EMPTY, ids=lambda make: make.__name__)


def called(layer: Any, make: Callable[..., Any]) -> np.ndarray:
    """What the layer says to some words, known and unknown."""
    inputs = {
        inverse: tf.constant([[0, 1, 2, 3, 4, 5]], tf.int64),
        integers: tf.constant([[5, 6, 7, 8, 9]], tf.int64),
        bins: tf.constant([[0.0, 0.15, 0.5, 1.5]]),
        vectorize: tf.constant([" ".join(SAMPLE[0])]),
        adapted_text: tf.constant([" ".join(SAMPLE[0])]),
    }
    return np.asarray(layer(inputs.get(make, tf.constant(SAMPLE))))


def net(k: Any, layer: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = k.layers.Dense(2, name="head")
            self.lookup = layer

        def call(self, inputs: Any) -> Any:
            return self.head(inputs)

    model = Net()
    model(np.ones((1, 3), np.float32))
    return model


def config(path: str, **policy: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"path": path, "policy": policy}}


def by_checkpoint(model: Any, path: str) -> Any:
    return tfckpt.Checkpoint(model=model).restore(path).report


def by_config(model: Any, path: str) -> Any:
    return tfckpt.restore(config(path), model=model)


ways = pytest.mark.parametrize("restore", [by_checkpoint, by_config])


def step_of(report: Any) -> Any:
    (step,) = [
        step
        for step in report.plan.steps
        if step.name and step.entry.role is tfckpt.Role.VOCABULARY
    ]
    return step


@ways
@layers
def test_the_same_words_are_loaded(flavour, make, restore, tmp_path) -> None:
    source, target = (net(flavour, make(flavour, OLD)) for _ in range(2))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    report = restore(target, path)
    assert step_of(report).status is Status.LOADED
    np.testing.assert_array_equal(called(target.lookup, make), called(source.lookup, make))


@ways
@layers
def test_other_words_are_refused(flavour, make, restore, tmp_path) -> None:
    source, target = net(flavour, make(flavour, OLD)), net(flavour, make(flavour, NEW))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    before, expected = target.head.get_weights(), called(target.lookup, make)
    with pytest.raises(tfckpt.RefusedError) as error:
        restore(target, path)
    (step,) = error.value.plan.errors
    assert step.status is Status.SUSPECT
    name = "bin_boundaries" if make is bins else "vocabulary"
    assert step.name.endswith(f"/{name}")
    count = 2 if make is bins else 4
    assert step.reason == (
        f"the layer has {count} entries; the checkpoint has other entries, or another order"
    )
    assert "build the layer with the entries in the checkpoint" in step.hint
    np.testing.assert_array_equal(target.head.get_weights()[0], before[0])
    np.testing.assert_array_equal(called(target.lookup, make), expected)


@ways
@pytest.mark.parametrize("make", [strings, vectorize, integers], ids=lambda make: make.__name__)
def test_more_words_are_refused(flavour, make, restore, tmp_path) -> None:
    source, target = net(flavour, make(flavour, OLD)), net(flavour, make(flavour, OLD[:3]))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.RefusedError, match="the layer has 3 entries, and the checkpoint"):
        restore(target, path)


@ways
@empty_too
def test_a_layer_without_words_takes_them(flavour, make, restore, tmp_path) -> None:
    source, target = net(flavour, make(flavour, OLD)), net(flavour, make(flavour, None))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    policy = {"on_unexpected": "warn", "on_missing": "warn"}  # the tables of one that is adapted
    if restore is by_config:
        tfckpt.restore(config(path, **policy), model=target)
    else:
        restore(target, path)
    np.testing.assert_array_equal(called(target.lookup, make), called(source.lookup, make))
    theirs, own = source.lookup.get_vocabulary(), target.lookup.get_vocabulary()
    assert list(map(str, own)) == list(map(str, theirs))


def test_bins_that_were_adapted(flavour, tmp_path) -> None:
    source = net(flavour, flavour.layers.Discretization(num_bins=3))
    source.lookup.adapt(np.arange(12, dtype=np.float32).reshape(-1, 1))
    target = net(flavour, flavour.layers.Discretization(num_bins=3))
    other = net(flavour, flavour.layers.Discretization(num_bins=3))
    if flavour.__name__ == "tf_keras":  # which keeps a summary of them in a variable
        target.lookup.build((None, 1)), other.lookup.build((None, 1))
    other.lookup.adapt(np.arange(50, 62, dtype=np.float32).reshape(-1, 1))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    values = tf.constant([[0.0], [3.0], [5.0], [9.0], [55.0]])
    by_checkpoint(target, path)
    np.testing.assert_array_equal(np.asarray(target.lookup(values)), source.lookup(values))
    if flavour.__name__ == "tf_keras":
        by_checkpoint(other, path)
        np.testing.assert_array_equal(np.asarray(other.lookup(values)), source.lookup(values))
    else:
        with pytest.raises(tfckpt.RefusedError, match=r"the checkpoint has other\s+entries"):
            by_checkpoint(other, path)


def test_words_that_need_weights_are_refused_in_words(flavour, tmp_path) -> None:
    source = flavour.layers.StringLookup(
        output_mode="tf_idf", vocabulary=OLD, idf_weights=[0.1, 0.2, 0.3, 0.4]
    )
    source, target = (
        net(flavour, layer) for layer in (source, flavour.layers.StringLookup(output_mode="tf_idf"))
    )
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    before = target.head.get_weights()
    with pytest.raises(tfckpt.RestoreError, match=r"set_vocabulary\(words, idf_weights\)"):
        by_checkpoint(target, path)
    np.testing.assert_array_equal(target.head.get_weights()[0], before[0])


def test_an_assertion_that_fails_takes_the_words_back(flavour, tmp_path) -> None:
    source, target = (net(flavour, strings(flavour, words)) for words in (OLD, None))
    path = tfckpt.Checkpoint(model=source, more=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    status = tfckpt.Checkpoint(model=target).restore(path)
    assert target.lookup.vocabulary_size() == 5
    with pytest.raises(AssertionError):
        status.assert_consumed()
    assert target.lookup.vocabulary_size() == 1


def written(model: Any, kind: str, directory: Any) -> str:
    path = str(directory / f"model{kind}")
    if kind == ".weights.h5":
        model.save_weights(path)
        return path
    return str(tf.train.Checkpoint(model=model).save(path))


@layers
@pytest.mark.parametrize("kind", ["", ".weights.h5"])
def test_a_file_without_them_is_loaded_with_a_warning(flavour, make, kind, tmp_path) -> None:
    """The words may be those of the training: nobody can tell, and the report says so."""
    source, target = net(flavour, make(flavour, OLD)), net(flavour, make(flavour, OLD))
    path = written(source, kind, tmp_path)
    policy = {"on_unexpected": "warn", "on_missing": "warn"}  # the tables of one that is adapted
    report = tfckpt.restore(config(path, **policy), model=target)
    step = step_of(report)
    assert (step.status, step.severity) == (Status.MISSING, Severity.WARN)
    assert step.reason == (
        "not in the checkpoint: only tfckpt saves vocabularies and bins. The model keeps its own, "
        "which must be those that it was trained with"
    )
    assert "only tfckpt saves vocabularies" in str(report)
    np.testing.assert_array_equal(target.head.get_weights()[0], source.head.get_weights()[0])


def test_plain_tensorflow_restores_what_tfckpt_saved_of_them(flavour, tmp_path) -> None:
    source, target = (net(flavour, strings(flavour, OLD)) for _ in range(2))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    status = tf.train.Checkpoint(model=target).restore(path)
    status.expect_partial().assert_existing_objects_matched()
    np.testing.assert_array_equal(target.head.get_weights()[0], source.head.get_weights()[0])
    (key,) = [key for key, _ in tf.train.list_variables(path) if "vocabulary" in key]
    assert tf.train.load_variable(path, key).tolist() == [word.encode() for word in OLD]


def test_a_lost_record_costs_no_words(flavour, tmp_path) -> None:
    source, target, other = (net(flavour, strings(flavour, w)) for w in (OLD, None, NEW))
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    (tmp_path / "ckpt-1.tfckpt.json").unlink()
    by_checkpoint(target, path)
    np.testing.assert_array_equal(called(target.lookup, strings), called(source.lookup, strings))
    with pytest.raises(tfckpt.RefusedError, match=r"the checkpoint has other\s+entries"):
        by_checkpoint(other, path)


def saved(flavour: Any, words: list[str], directory: Any) -> str:
    model = net(flavour, strings(flavour, words))
    return str(tfckpt.Checkpoint(model=model).save(str(directory / "ckpt")))


def test_an_average_has_the_words_that_all_have(flavour, tmp_path) -> None:
    paths = [saved(flavour, OLD, tmp_path) for _ in range(2)]
    policy = {"on_missing": "warn"}  # the tables of what could be adapted
    average = {"version": 1, "restore": {"average": paths, "policy": policy}}
    for words in (OLD, None):
        target = net(flavour, strings(flavour, words))
        assert step_of(tfckpt.restore(average, model=target)).status is Status.LOADED
        assert [str(word) for word in target.lookup.get_vocabulary()[1:]] == OLD
    target = net(flavour, strings(flavour, NEW))
    before = target.head.get_weights()
    with pytest.raises(
        tfckpt.RestoreError, match="already has other words, or another order of them"
    ):
        tfckpt.restore(average, model=target)
    np.testing.assert_array_equal(target.head.get_weights()[0], before[0])


def test_the_command_line_shows_rewrites_and_compares_them(
    flavour, tmp_path, capsys, monkeypatch
) -> None:
    path = saved(flavour, OLD, tmp_path)
    assert main(["tfckpt", "inspect", path, "--name", "**/vocabulary"]) == 0
    assert "b'red' b'green' b'blue'" in capsys.readouterr().out
    copy = str(tmp_path / "copy" / "ckpt-1")
    assert main(["tfckpt", "convert", path, copy]) == 0
    target = net(flavour, strings(flavour, None))
    by_checkpoint(target, copy)
    assert [str(word) for word in target.lookup.get_vocabulary()[1:]] == OLD
    other = saved(flavour, NEW, tmp_path)
    capsys.readouterr()
    assert main(["tfckpt", "diff", path, other, "--values"]) == 1
    assert "model/lookup/vocabulary" in capsys.readouterr().out
