"""The ready-made configs of docs/gallery.md: each restores what its first line says, and no more.

The sources are written by TensorFlow and Keras themselves, and what is expected is worked out here
from the values that were written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from golden.files import check, check_folder
from golden.plan_lines import plan_lines

import tfckpt

PROJECT = Path(__file__).resolve().parents[2]
CONFIGS = PROJECT / "configs"
PAGE = (PROJECT / "docs" / "gallery.md").read_text(encoding="utf-8")
TABLE, PROGRAMS = PAGE.split("## Programs")
SHOWN = re.findall(r"^\| \[(\w+)\]\(\.\./configs/\1\.yaml\) \|", TABLE, re.MULTILINE)
MOST_LINES = 15


def restore(name: str, written: str = "", **objects: Any) -> tfckpt.RestoreReport:
    """Restore, by the plan that stands in tests/golden/plans/gallery; ``written``: the format."""
    report = tfckpt.restore(CONFIGS / f"{name}.yaml", **objects)
    check(f"plans/gallery/{name}{written}", plan_lines(report.plan))
    return report


def classifier(
    encoder: str = "encoder", *, classes: int = 3, flavour: Any = keras, blocks: str = ""
) -> Any:
    layers = [flavour.layers.Dense(8, name="dense")]
    layers += [flavour.layers.Dense(8, name=f"{blocks}_{n}") for n in range(2) if blocks]
    body = flavour.Sequential([flavour.layers.Input((4,)), layers[0]], name=encoder)
    head = flavour.layers.Dense(classes, name="classes")
    return flavour.Sequential([flavour.layers.Input((4,)), body, *layers[1:], head])


def weights(layer: Any) -> list[np.ndarray]:
    return [np.asarray(value, np.float32) for value in layer.get_weights()]


def assert_same(layer: Any, expected: list[np.ndarray]) -> None:
    assert expected
    for got, value in zip(weights(layer), expected, strict=True):
        np.testing.assert_array_equal(got, value)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where ``${SOURCE}`` points."""
    monkeypatch.setenv("SOURCE", str(tmp_path / "source"))
    monkeypatch.setenv("RUN_DIR", str(tmp_path))
    return str(tmp_path / "source")


def write(path: str, **objects: Any) -> None:
    tf.train.Checkpoint(**objects).write(path)


def test_each_is_short_and_begins_with_what_it_does() -> None:
    assert len(SHOWN) >= 15
    for path in CONFIGS.glob("*.yaml"):
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        assert first.startswith("# "), path
        assert len(lines) < MOST_LINES, path


def test_every_config_is_on_the_page_and_has_a_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in SHOWN if f'restore("{name}"' not in here] == []
    of_programs = re.findall(r"\(\.\./configs/(\w+)\.yaml\) \|$", PROGRAMS, re.MULTILINE)
    assert {*SHOWN, *of_programs} == {path.stem for path in CONFIGS.glob("*.yaml")}


def test_every_program_reads_the_config_beside_it() -> None:
    rows = re.findall(r"\(\.\./(examples/.*?)\) .*?\.\./configs/(\w+)\.yaml", PROGRAMS)
    for program, config in rows:
        text = (PROJECT / program).read_text(encoding="utf-8")
        assert f"{config}.yaml" in text, program
    assert len(rows) == 6


def test_every_golden_plan_is_one_of_the_gallery() -> None:
    check_folder("plans/gallery", [*SHOWN, "keras2_weights.h5"])


def checkpoints(source: str) -> str:
    """The directory of the run that ``${RUN_DIR}`` is."""
    return str(Path(source).parent / "checkpoints")


def trained(model: Any) -> Any:
    model.compile("adam", "mse")
    model.fit(np.ones((4, 4)), np.ones((4, 3)), verbose=0, epochs=2)
    return model


def save(source: str, model: Any) -> None:
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    tf.train.CheckpointManager(checkpoint, checkpoints(source), max_to_keep=1).save()


def assert_same_run(new: Any, old: Any) -> None:
    assert_same(new, weights(old))
    for one, other in zip(new.optimizer.variables, old.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_resume(source: str) -> None:
    old, new = trained(classifier()), classifier()
    new.compile("adam", "mse")
    save(source, old)
    restore("resume", model=new, optimizer=new.optimizer)
    assert_same_run(new, old)


def test_finetune(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = classifier(), classifier(classes=5)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=old), f"{source}s", max_to_keep=1
    )
    manager.save()
    monkeypatch.setenv("PRETRAINED", f"{source}s")
    before = weights(new.layers[-1])
    restore("finetune", model=new)
    assert_same(new.layers[0], weights(old.layers[0]))
    assert_same(new.layers[-1], before)


def test_refactored_code(source: str) -> None:
    old = trained(classifier("backbone", blocks="block"))
    new = classifier("encoder", blocks="stage")
    new.compile("adam", "mse")
    save(source, old)
    restore("refactored", model=new, optimizer=new.optimizer)
    assert_same_run(new, old)


def test_tf1_model_as_a_component(source: str) -> None:
    rng = np.random.default_rng(1)
    kernel, bias = rng.normal(size=(4, 8)), rng.normal(size=8)
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        with tf.compat.v1.variable_scope("dense"):
            for name, value in (("kernel", kernel), ("bias", bias)):
                tf.compat.v1.get_variable(
                    name, initializer=value.astype(np.float32), use_resource=False
                )
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, source, write_meta_graph=False)
    new = classifier()
    before = weights(new.layers[-1])
    restore("tf1_component", model=new)
    assert_same(new.layers[0], [kernel.astype(np.float32), bias.astype(np.float32)])
    assert_same(new.layers[-1], before)


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_keras_2_weights(source: str, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = classifier(flavour=tf_keras), classifier()
    old.save_weights(source + suffix)
    monkeypatch.setenv("SOURCE", source + suffix)
    restore("keras2_weights", suffix, model=new)
    assert_same(new, weights(old))


def test_moving_averages(source: str) -> None:
    old, new = classifier(), classifier()
    old.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    for _ in range(3):  # `fit` would end by making the averages the weights
        old.train_on_batch(np.ones((4, 4)), np.ones((4, 3)))
    averages = [np.asarray(v) for v in old.optimizer._model_variables_moving_average]
    write(source, model=old, optimizer=old.optimizer)
    restore("moving_averages", model=new)
    assert not np.array_equal(averages[0], weights(old)[0])
    assert_same(new, averages)


def test_encoder_and_head_of_two_models(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, new = classifier(), classifier(), classifier()
    for name, model in (("ENCODER", one), ("HEAD", other)):
        monkeypatch.setenv(name, f"{source}-{name}")
        write(f"{source}-{name}", model=model)
    restore("two_sources", model=new)
    assert_same(new.layers[0], weights(one.layers[0]))
    assert_same(new.layers[-1], weights(other.layers[-1]))


def test_more_classes(source: str) -> None:
    old, new = classifier(classes=3), classifier(classes=6)
    write(source, model=old)
    initial = weights(new.layers[-1])
    restore("more_classes", model=new)
    assert_same(new.layers[0], weights(old.layers[0]))
    expected = [
        np.concatenate([known, start[..., 3:]], axis=-1)
        for known, start in zip(weights(old.layers[-1]), initial, strict=True)
    ]
    assert_same(new.layers[-1], expected)


def vision(side: int, channels: int = 1) -> Any:
    """A stem over images, and one learned embedding per patch and for the class token."""
    images = keras.Input((side * 2, side * 2, channels))
    patches = keras.layers.Conv2D(8, 2, strides=2, name="stem")(images)
    tokens = keras.layers.Reshape((side * side, 8))(patches)
    tokens = keras.layers.ZeroPadding1D((1, 0))(tokens)
    places = keras.ops.arange(side * side + 1)
    embedded = keras.layers.Embedding(side * side + 1, 8, name="positions")(
        keras.layers.Lambda(lambda x: keras.ops.zeros_like(x[..., 0], "int32") + places)(tokens)
    )
    return keras.Model(images, keras.layers.Add()([tokens, embedded]))


def test_another_image_size(source: str) -> None:
    old, new = vision(4), vision(6)
    write(source, model=old)
    restore("image_size", model=new)
    (table,) = weights(old.get_layer("positions"))
    grid = tf.image.resize(table[1:].reshape(4, 4, 8), (6, 6)).numpy().reshape(36, 8)
    (got,) = weights(new.get_layer("positions"))
    np.testing.assert_array_equal(got[0], table[0])
    np.testing.assert_allclose(got[1:], grid, rtol=1e-6)
    assert_same(new.get_layer("stem"), weights(old.get_layer("stem")))


def words(count: int) -> Any:
    return keras.Sequential(
        [keras.Input((5,), dtype="int32"), keras.layers.Embedding(count, 4, name="words")]
    )


def test_another_vocabulary(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = words(3), words(4)
    for name, lines in (("OLD_WORDS", "the\ncat\nsat\n"), ("NEW_WORDS", "a\nsat\ndog\nthe\n")):
        Path(f"{source}.{name}").write_text(lines, encoding="utf-8")
        monkeypatch.setenv(name, f"{source}.{name}")
    write(source, model=old)
    (initial,), (table,) = weights(new), weights(old)
    restore("vocabulary", model=new)
    assert_same(new, [np.stack([initial[0], table[2], initial[2], table[0]])])


def test_grayscale_to_colors(source: str) -> None:
    old, new = vision(2), vision(2, channels=3)
    write(source, model=old)
    restore("gray_to_rgb", model=new)
    gray = np.random.default_rng(2).random((1, 4, 4, 1), np.float32)
    np.testing.assert_allclose(new(np.repeat(gray, 3, axis=-1)), old(gray), rtol=1e-5, atol=1e-6)


def attention(*names: str, units: int) -> Any:
    tokens = keras.Input((5, 4))
    found = [keras.layers.Dense(units, name=name)(tokens) for name in names]
    return keras.Model(tokens, keras.layers.Concatenate()(found) if found[1:] else found[0])


def test_fused_attention(source: str) -> None:
    keras.utils.set_random_seed(4)  # of some values, sums near zero differ by more
    old, new = attention("qkv", units=12), attention("query", "key", "value", units=4)
    write(source, model=old)
    restore("fused_attention", model=new)
    tokens = np.random.default_rng(3).random((2, 5, 4), np.float32)
    np.testing.assert_allclose(new(tokens), old(tokens), rtol=1e-6)


def test_another_optimizer(source: str) -> None:
    old, new = trained(classifier()), classifier()
    save(source, old)
    new.compile(keras.optimizers.SGD(0.25, momentum=0.9), "mse")
    restore("other_optimizer", model=new, optimizer=new.optimizer)
    assert_same(new, weights(old))
    assert int(new.optimizer.iterations.numpy()) == 2
    assert float(new.optimizer.learning_rate.numpy()) == 0.25
    assert all(not np.any(np.asarray(slot)) for slot in new.optimizer.momentums)


def test_the_average_of_the_last_five(source: str) -> None:
    model = classifier()
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, checkpoints(source), max_to_keep=None)
    seen = []
    rng = np.random.default_rng(4)
    for _ in range(6):
        model.set_weights([rng.normal(size=v.shape) for v in model.weights])
        seen.append(weights(model))
        manager.save()
    restore("soup", model=model)
    for got, history in zip(weights(model), zip(*seen[1:], strict=True), strict=True):
        mean = np.mean(np.stack(history).astype(np.float64), axis=0)
        np.testing.assert_array_equal(got, mean.astype(np.float32))


def test_half_precision(source: str) -> None:
    old = classifier()
    keras.config.set_dtype_policy("bfloat16")
    try:
        new = classifier()
    finally:
        keras.config.set_dtype_policy("float32")
    write(source, model=old)
    restore("half_precision", model=new)
    for got, value in zip(new.weights, weights(old), strict=True):
        assert got.dtype == "bfloat16"
        np.testing.assert_array_equal(got.value, tf.cast(value, tf.bfloat16))
