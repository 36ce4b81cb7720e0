"""Lookups of words: after a restore they look up what they did when they were saved, or refuse.

Neither Keras has a vocabulary in TensorFlow's checkpoints or in ``.weights.h5``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.restores import config, holding, refused, same, written

import tfckpt
from tfckpt.planning import Severity, Status

OLD, NEW = ["red", "green", "blue", "grün"], ["green", "red", "blue", "grün"]
SAMPLE = ["red", "blue", "violet", "green", "grün"]
TEXT = tf.constant([" ".join(SAMPLE)])
OTHER = r"the checkpoint has other\s+entries"
LENIENT = {"on_unexpected": "warn", "on_missing": "warn"}  # the tables of one that is adapted


def strings(k: Any, words: list[str] | None, **arguments: Any) -> Any:
    return k.layers.StringLookup(vocabulary=words, **arguments)


def text(k: Any, words: list[str] | None) -> Any:
    return k.layers.TextVectorization(vocabulary=words, output_sequence_length=5)


def adapted(layer: Any, words: list[str] | None) -> Any:
    if words is not None:  # the more often, the sooner
        layer.adapt(tf.constant([word for n, word in enumerate(words[::-1], 1) for _ in range(n)]))
    return layer


def integers(k: Any, words: list[str] | None) -> Any:
    known = None if words is None else [OLD.index(word) + 5 for word in words]
    return k.layers.IntegerLookup(vocabulary=known)


# How it is made of words or without, and what it is asked: known ones and unknown ones.
COLOURS = tf.constant([SAMPLE])
LAYERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "strings": (strings, COLOURS),
    "adapted": (lambda k, words: adapted(k.layers.StringLookup(), words), COLOURS),
    "inverse": (
        lambda k, words: strings(k, words, invert=True), tf.constant([range(6)], tf.int64)),
    "several oov": (
        lambda k, words: strings(k, words, num_oov_indices=3, mask_token=""), COLOURS),
    "hot": (lambda k, words: strings(k, words, output_mode="multi_hot"), COLOURS),
    "text": (text, TEXT),
    "adapted text": (lambda k, words: adapted(text(k, None), words), TEXT),
    "integers": (integers, tf.constant([range(5, 10)], tf.int64)),
    "bins": (lambda k, words: k.layers.Discretization([0.1 if words == OLD else 0.2, 1.0]),
             tf.constant([[0.0, 0.15, 0.5, 1.5]])),
}  # fmt: skip
WAYS = [
    lambda model, path: tfckpt.Checkpoint(model=model).restore(path).report,
    lambda model, path: tfckpt.restore(config(path), model=model),
]


def step_of(report: Any) -> Any:
    steps = [step for step in report.plan.steps if step.name]
    (step,) = [step for step in steps if step.entry.role is tfckpt.Role.VOCABULARY]
    return step


@pytest.mark.parametrize("case", LAYERS)
def test_words_are_those_of_the_save_or_refused(flavour, case, tmp_path) -> None:
    make, asked = LAYERS[case]

    def net(words: list[str] | None) -> Any:
        return holding(flavour, lookup=make(flavour, words))

    source = net(OLD)
    path = written(source, "tfckpt", tmp_path)
    expected = np.asarray(source.lookup(asked))
    count, name = (2, "bin_boundaries") if case == "bins" else (4, "vocabulary")
    for restore in WAYS if case == "strings" else WAYS[:1]:
        target = net(OLD)
        assert step_of(restore(target, path)).status is Status.LOADED
        same(target.lookup(asked), expected)
        target = net(NEW)
        before, own = target.head.get_weights(), np.asarray(target.lookup(asked))
        with pytest.raises(tfckpt.RefusedError) as error:
            restore(target, path)
        (step,) = error.value.plan.errors
        assert (step.status, step.name.endswith(f"/{name}")) == (Status.SUSPECT, True)
        assert step.reason == (
            f"the layer has {count} entries; the checkpoint has other entries, or another order"
        )
        assert "build the layer with the entries in the checkpoint" in step.hint
        same(target.head.get_weights(), before)
        same(target.lookup(asked), own)
        if case in ("strings", "text", "integers"):
            with pytest.raises(tfckpt.RefusedError, match="has 3 entries, and the checkpoint"):
                restore(net(OLD[:3]), path)
    if case != "bins":
        for policy in (None, LENIENT):
            target = net(None)
            if policy:
                tfckpt.restore(config(path, **policy), model=target)
            else:
                WAYS[0](target, path)
            same(target.lookup(asked), expected)
            theirs, own = source.lookup.get_vocabulary(), target.lookup.get_vocabulary()
            assert list(map(str, own)) == list(map(str, theirs))
    for kind in ("tensorflow", ".weights.h5"):  # nobody can tell whether they are the same
        target = net(OLD)
        report = tfckpt.restore(config(written(source, kind, tmp_path), **LENIENT), model=target)
        step = step_of(report)
        assert (step.status, step.severity) == (Status.MISSING, Severity.WARN)
        assert "The model keeps its own, which must be those that it was trained with" in str(
            step.reason
        )
        assert "only tfckpt saves vocabularies" in str(report)
        same(target.head.get_weights(), source.head.get_weights())


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)
def test_bins_that_were_adapted(flavour, tmp_path) -> None:
    def net(start: int | None) -> Any:
        layer = flavour.layers.Discretization(num_bins=3)
        if flavour.__name__ == "tf_keras":  # which keeps a summary of them in a variable
            layer.build((None, 1))
        if start is not None:
            layer.adapt(np.arange(start, start + 12, dtype=np.float32).reshape(-1, 1))
        return holding(flavour, lookup=layer)

    source, target, other = net(0), net(None), net(50)
    path = written(source, "tfckpt", tmp_path)
    values = tf.constant([[0.0], [3.0], [5.0], [9.0], [55.0]])
    WAYS[0](target, path)
    same(target.lookup(values), source.lookup(values))
    if flavour.__name__ == "tf_keras":
        WAYS[0](other, path)
        same(other.lookup(values), source.lookup(values))
    else:
        with pytest.raises(tfckpt.RefusedError, match=OTHER):
            WAYS[0](other, path)


def test_words_that_need_weights_are_refused_in_words(flavour, tmp_path) -> None:
    def net(**words: Any) -> Any:
        layer = flavour.layers.StringLookup(output_mode="tf_idf", **words)
        return holding(flavour, lookup=layer)

    path = written(net(vocabulary=OLD, idf_weights=[0.1, 0.2, 0.3, 0.4]), "tfckpt", tmp_path)
    assert "set_vocabulary(words, idf_weights)" in refused(path, net(), tfckpt.RestoreError)


def of_strings(flavour: Any, words: list[str] | None) -> Any:
    return holding(flavour, lookup=strings(flavour, words))


def test_an_assertion_that_fails_takes_the_words_back(flavour, tmp_path) -> None:
    source, target = (of_strings(flavour, words) for words in (OLD, None))
    path = tfckpt.Checkpoint(model=source, more=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    status = tfckpt.Checkpoint(model=target).restore(path)
    assert target.lookup.vocabulary_size() == 5
    with pytest.raises(AssertionError):
        status.assert_consumed()
    assert target.lookup.vocabulary_size() == 1


def test_plain_tensorflow_restores_them_and_a_lost_record_costs_none(flavour, tmp_path) -> None:
    source, target = (of_strings(flavour, OLD) for _ in range(2))
    path = written(source, "tfckpt", tmp_path)
    status = tf.train.Checkpoint(model=target).restore(path)
    status.expect_partial().assert_existing_objects_matched()
    same(target.head.get_weights(), source.head.get_weights())
    (key,) = [key for key, _ in tf.train.list_variables(path) if "vocabulary" in key]
    assert tf.train.load_variable(path, key).tolist() == [word.encode() for word in OLD]
    (tmp_path / "model-1.tfckpt.json").unlink()
    target = of_strings(flavour, None)
    WAYS[0](target, path)
    same(target.lookup(tf.constant(SAMPLE)), source.lookup(tf.constant(SAMPLE)))
    with pytest.raises(tfckpt.RefusedError, match=OTHER):
        WAYS[0](of_strings(flavour, NEW), path)


# In lists and dicts

HOLDS = [list, lambda made: dict(zip("abcde", made, strict=False)), lambda made: {"a": [made]}]


@pytest.mark.parametrize("hold", HOLDS, ids=["list", "dict", "deeper"])
def test_lookups_and_tables_in_containers_come_back(flavour, hold, tmp_path) -> None:
    words = ["red", "green", "green", "blue", "blue", "blue"]

    def lookups(words: list[str]) -> list[Any]:
        made = [
            flavour.layers.StringLookup(),
            flavour.layers.IntegerLookup(),
            flavour.layers.TextVectorization(output_sequence_length=3),
        ]
        if words:
            lengths = tf.constant([len(word) for word in words], tf.int64)
            for layer, sample in zip(made, (words, lengths, words), strict=True):
                layer.adapt(tf.constant(sample))
        return made

    def table(**pairs: int) -> Any:
        made = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        for word, number in pairs.items():
            made.insert(tf.constant([word]), tf.constant([number], tf.int64))
        return made

    old, tables = lookups(words), [table(red=1, green=2), table(blue=3)]
    path = written(holding(flavour, held=hold([*old, *tables])), "tfckpt", tmp_path)
    new, others = lookups([]), [table(), table(blue=7, grey=8)]
    model = holding(flavour, held=hold([*new, *others]))
    tfckpt.Checkpoint(model=model).restore(path).assert_consumed()
    asked = [
        tf.constant(["red", "blue", "violet", "green"]),
        tf.constant([3, 4, 5, 6], tf.int64),
        tf.constant(["blue red violet", "green"]),
    ]
    for before, after, sample in zip(old, new, asked, strict=True):
        same(after(sample), before(sample))
    known = tf.constant(["red", "green", "blue", "grey"])
    assert [found.lookup(known).numpy().tolist() for found in others] == [
        [1, 2, -1, -1],
        [-1, -1, 3, -1],
    ]


def features(k: Any) -> Any:
    space = k.utils.FeatureSpace
    return space(
        features={
            "colour": space.string_categorical(num_oov_indices=1),
            "size": space.float_normalized(),
            "count": space.integer_categorical(),
            "price": space.float_discretized(num_bins=3),
        },
        crosses=[space.cross(("colour", "count"), crossing_dim=8)],
        output_mode="concat",
    )


def rows(factor: float = 1.0) -> dict[str, Any]:
    return {
        "colour": ["red", "blue", "green", "red"],
        "size": [1.0 * factor, 2.0, 3.0, 5.0],
        "count": [1, 2, 3, 3],
        "price": [0.1, 0.2, 0.3, 0.4],
    }


def test_a_feature_space_comes_back_or_is_told_to_adapt(flavour, tmp_path) -> None:
    old, new = features(flavour), features(flavour)
    old.adapt(tf.data.Dataset.from_tensor_slices(rows()).batch(2))
    new.adapt(tf.data.Dataset.from_tensor_slices(rows(7.0)).batch(2))  # another mean
    inputs = {name: tf.constant(values) for name, values in rows().items()}
    expected = np.asarray(old(inputs))
    assert not np.array_equal(new(inputs), expected)
    path = tfckpt.Checkpoint(space=old).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(space=new).restore(path).assert_consumed()
    same(new(inputs), expected)
    with pytest.raises(tfckpt.NotBuiltError, match=r"feature_space\.adapt\(dataset\)"):
        tfckpt.Checkpoint(space=features(flavour)).restore(path)
