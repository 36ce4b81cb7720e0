"""The ready-made configs of docs/gallery.md: each restores what its first line says, and no more.

The sources are written by TensorFlow and Keras themselves, and what is expected is worked out here
from the values that were written.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
from keras import layers

import tfckpt
from tfckpt.policy import load_config

Values = list[np.ndarray]
PROJECT = Path(__file__).resolve().parents[2]
CONFIGS = PROJECT / "configs"
PAGE = (PROJECT / "docs" / "gallery.md").read_text(encoding="utf-8")
TABLE, PROGRAMS = PAGE.split("## Programs")
MOST_LINES = 15


def classifier(
    encoder: str = "encoder", classes: int = 3, blocks: str = "", flavor: Any = keras
) -> Any:
    dense = flavor.layers.Dense
    body = flavor.Sequential([flavor.layers.Input((4,)), dense(8, name="dense")], name=encoder)
    more = [dense(8, name=f"{blocks}_{n}") for n in range(2) if blocks]
    head = dense(classes, name="classes")
    return flavor.Sequential([flavor.layers.Input((4,)), body, *more, head])


def compiled(model: Any, optimizer: Any = "adam", steps: int = 0) -> Any:
    model.compile(optimizer, "mse", run_eagerly=True)
    for _ in range(steps):
        model.train_on_batch(np.ones((4, 4)), np.ones((4, 3)))
    return model


def with_optimizer(build: Callable[[], Any]) -> Callable[[], Any]:
    """A model whose checkpoint holds more than its weights, as most do."""

    def built() -> Any:
        model = build()
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    return built


def vision(side: int, channels: int = 1) -> Any:
    """A stem over images, and one learned embedding per patch and for the class token."""
    images = keras.Input((side * 2, side * 2, channels))
    patches = layers.Conv2D(8, 2, strides=2, name="stem")(images)
    tokens = layers.Reshape((side * side, 8))(patches)
    tokens = layers.ZeroPadding1D((1, 0))(tokens)
    places = keras.ops.arange(side * side + 1)
    embedded = layers.Embedding(side * side + 1, 8, name="positions")(
        layers.Lambda(lambda x: keras.ops.zeros_like(x[..., 0], "int32") + places)(tokens)
    )
    return keras.Model(images, layers.Add()([tokens, embedded]))


def words(count: int) -> Any:
    return keras.Sequential(
        [keras.Input((5,), dtype="int32"), layers.Embedding(count, 4, name="words")]
    )


def attention(*names: str, units: int) -> Any:
    tokens = keras.Input((5, 4))
    found = [layers.Dense(units, name=name)(tokens) for name in names]
    return keras.Model(tokens, layers.Concatenate()(found) if found[1:] else found[0])


def half() -> Any:
    keras.config.set_dtype_policy("bfloat16")
    try:
        return classifier()
    finally:
        keras.config.set_dtype_policy("float32")


# --- how a source is written: from a model and a directory; the weights that count


def weights(model: Any) -> Values:
    return [np.asarray(value, np.float32) for value in model.get_weights()]


def written(old: Any, place: Path) -> Values:
    optimizer = {"optimizer": old.optimizer} if getattr(old, "optimizer", None) else {}
    checkpoint = tf.train.Checkpoint(model=old, **optimizer)
    checkpoint.write(str(place / "source"))
    for directory in ("checkpoints", "pretrained"):
        tf.train.CheckpointManager(checkpoint, str(place / directory), max_to_keep=1).save()
    return weights(old)


def of_tensorflow_1(old: Any, place: Path) -> Values:
    values = weights(old)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with tf.compat.v1.variable_scope("dense"):
            for name, value in zip(("kernel", "bias"), values, strict=False):
                tf.compat.v1.get_variable(name, initializer=value, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(place / "source"), write_meta_graph=False)
    return values


def of_keras_2(suffix: str) -> Callable[[Any, Path], Values]:
    def write(old: Any, place: Path) -> Values:
        old.save_weights(f"{place}/source{suffix}")
        return weights(old)

    return write


def averages(old: Any, place: Path) -> Values:
    written(old, place)
    found = [np.asarray(v) for v in old.optimizer._model_variables_moving_average]
    assert not np.array_equal(found[0], weights(old)[0])
    return found


def of_two_models(old: Any, place: Path) -> Values:
    other = classifier()
    for name, model in (("ENCODER", old), ("HEAD", other)):
        tf.train.Checkpoint(model=model).write(f"{place}/{name}")
    return weights(old)[:2] + weights(other)[2:]


# --- what the new model holds then: of the weights that count, and those that it had


def all_of_them(old: Values, new: Values) -> Values:
    return old


def but_the_head(old: Values, new: Values) -> Values:
    return old[:2] + new[2:]


def old_rows_first(old: Values, new: Values) -> Values:
    return old[:2] + [np.append(a, b[..., 3:], -1) for a, b in zip(old[2:], new[2:], strict=True)]


def rows_of_words(old: Values, new: Values) -> Values:
    return [np.stack([new[0][0], old[0][2], new[0][2], old[0][0]])]


def grid_resized(old: Values, new: Values) -> Values:
    *stem, table = old
    grid = tf.image.resize(table[1:].reshape(4, 4, 8), (6, 6)).numpy().reshape(36, 8)
    return [*stem, np.concatenate([table[:1], grid])]


def channels_thrice(old: Values, new: Values) -> Values:
    return [np.repeat(old[0] / 3, 3, axis=2), *old[1:]]


def in_three(old: Values, new: Values) -> Values:
    kernels, biases = (np.split(value, 3, axis=-1) for value in old)
    return [value for pair in zip(kernels, biases, strict=True) for value in pair]


def rounded(old: Values, new: Values) -> Values:
    return [tf.cast(tf.cast(value, tf.bfloat16), tf.float32).numpy() for value in old]


class Case(NamedTuple):
    old: Callable[[], Any] = classifier
    new: Callable[[], Any] = classifier
    expected: Callable[[Values, Values], Values] = all_of_them
    write: Callable[[Any, Path], Values] = written
    source: str = "source"


EMA = {"use_ema": True, "ema_momentum": 0.5}
CASES = {
    "resume": Case(lambda: compiled(classifier(), steps=2), lambda: compiled(classifier())),
    "refactored": Case(
        lambda: compiled(classifier("backbone", blocks="block"), steps=2),
        lambda: compiled(classifier("encoder", blocks="stage")),
    ),
    "other_optimizer": Case(
        lambda: compiled(classifier(), steps=2),
        lambda: compiled(classifier(), keras.optimizers.SGD(0.25, momentum=0.9)),
    ),
    "finetune": Case(
        with_optimizer(classifier), lambda: classifier(classes=5), expected=but_the_head
    ),
    "tf1_component": Case(expected=but_the_head, write=of_tensorflow_1),
    "keras2_weights": Case(lambda: classifier(flavor=tf_keras), write=of_keras_2("")),
    "keras2_weights, HDF5": Case(
        lambda: classifier(flavor=tf_keras), write=of_keras_2(".h5"), source="source.h5"
    ),
    "moving_averages": Case(
        lambda: compiled(classifier(), keras.optimizers.SGD(0.1, **EMA), 3), write=averages
    ),
    "two_sources": Case(write=of_two_models),
    "more_classes": Case(with_optimizer(classifier), lambda: classifier(classes=6), old_rows_first),
    "image_size": Case(with_optimizer(lambda: vision(4)), lambda: vision(6), grid_resized),
    "vocabulary": Case(with_optimizer(lambda: words(3)), lambda: words(4), rows_of_words),
    "gray_to_rgb": Case(
        with_optimizer(lambda: vision(2)), lambda: vision(2, channels=3), channels_thrice
    ),
    "fused_attention": Case(
        with_optimizer(lambda: attention("qkv", units=12)),
        lambda: attention("query", "key", "value", units=4),
        in_three,
    ),
    "half_precision": Case(with_optimizer(classifier), half, rounded),
}


@pytest.fixture
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Case, Any, Values]:
    """Of a case: its name, itself, the old model and its values, which are written."""
    name = request.param
    case = CASES[name]
    for variable in ("ENCODER", "HEAD", "OLD_WORDS", "NEW_WORDS"):
        monkeypatch.setenv(variable, f"{tmp_path}/{variable}")
    monkeypatch.setenv("SOURCE", f"{tmp_path}/{case.source}")
    monkeypatch.setenv("PRETRAINED", f"{tmp_path}/pretrained")
    monkeypatch.setenv("RUN_DIR", str(tmp_path))
    (tmp_path / "OLD_WORDS").write_text("the\ncat\nsat\n", encoding="utf-8")
    (tmp_path / "NEW_WORDS").write_text("a\nsat\ndog\nthe\n", encoding="utf-8")
    old = case.old()
    return name, case, old, case.write(old, tmp_path)


def config_of(name: str) -> dict[str, Any]:
    text = (CONFIGS / f"{name.partition(',')[0]}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def restored(config: Any, new: Any) -> tfckpt.RestoreReport:
    optimizer = {"optimizer": new.optimizer} if new.compiled else {}
    return tfckpt.restore(config, model=new, **optimizer)


@pytest.mark.parametrize("source", CASES, indirect=True)
def test_a_config_restores_what_its_first_line_says_and_needs_all_its_lines(source: Any) -> None:
    name, case, old, values = source
    new = case.new()
    before = weights(new)
    restored(CONFIGS / f"{name.partition(',')[0]}.yaml", new)
    tolerance = 1e-6 if name in ("image_size", "gray_to_rgb") else 0
    for got, value in zip(weights(new), case.expected(values, before), strict=True):
        np.testing.assert_allclose(got, value, rtol=tolerance)
    if name == "other_optimizer":
        found = new.optimizer.iterations, new.optimizer.learning_rate
        assert [float(value.numpy()) for value in found] == [2, 0.25]
        assert not any(np.any(np.asarray(slot)) for slot in new.optimizer.momentums)
    elif new.compiled:
        for one, other in zip(new.optimizer.variables, old.optimizer.variables, strict=True):
            np.testing.assert_array_equal(one, other)

    def result(config: Any) -> Any:
        model = case.new()
        for variable in model.weights:
            variable.assign(variable * 0 + 0.25)
        report = restored(config, model)
        steps = [(step.name, step.status) for step in report.plan.steps]
        return [value.tolist() for value in weights(model)], steps, report.warnings

    config = config_of(name)
    with_all = result(config)
    for key, less in with_one_key_less(config):
        with contextlib.suppress(tfckpt.TfckptError):
            assert result(less) != with_all, key


def with_one_key_less(config: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The config without each of its keys, or items of a list, at any depth."""
    for key, value in config.items():
        yield f"{path}{key}", {other: config[other] for other in config if other != key}
        rows = enumerate(value) if isinstance(value, list) else ()
        inner = [(at, each) for at, each in rows if isinstance(each, dict)]
        for at, _ in inner if len(inner) > 1 else ():
            yield f"{path}{key}[{at}]", {**config, key: [*value[:at], *value[at + 1 :]]}
        for at, each in inner:
            for where, less in with_one_key_less(each, f"{path}{key}[{at}]."):
                yield where, {**config, key: [*value[:at], less, *value[at + 1 :]]}
        if isinstance(value, dict):
            for where, less in with_one_key_less(value, f"{path}{key}."):
                yield where, {**config, key: less}


@pytest.mark.parametrize("path", [*CONFIGS.glob("*.yaml")], ids=lambda path: path.stem)
def test_each_key_of_a_config_says_something(path: Path) -> None:
    env = dict.fromkeys(("SOURCE", "PRETRAINED", "RUN_DIR", "ENCODER", "HEAD"), "x")
    env |= {"OLD_WORDS": "old", "NEW_WORDS": "new"}
    config = load_config(config_of(path.stem), env)
    for key, less in with_one_key_less(config_of(path.stem)):
        with contextlib.suppress(tfckpt.PolicyError):
            assert load_config(less, env) != config, key


def test_each_config_is_short_on_the_page_and_used() -> None:
    shown = re.findall(r"^\| \[(\w+)\]\(\.\./configs/\1\.yaml\) \|", TABLE, re.MULTILINE)
    of_programs = re.findall(r"\(\.\./configs/(\w+)\.yaml\) \|$", PROGRAMS, re.MULTILINE)
    assert {*shown, *of_programs} == {path.stem for path in CONFIGS.glob("*.yaml")}
    assert {*shown} == {name.partition(",")[0] for name in CASES}
    for path in CONFIGS.glob("*.yaml"):
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        assert first.startswith("# "), path
        assert len(lines) < MOST_LINES, path
    rows = re.findall(r"\(\.\./(examples/.*?)\) .*?\.\./configs/(\w+)\.yaml", PROGRAMS)
    assert len(rows) == 6
    for program, config in rows:
        assert f"{config}.yaml" in (PROJECT / program).read_text(encoding="utf-8"), program
