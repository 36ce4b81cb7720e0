"""`tfckpt convert`: what NumPy, safetensors and Keras read is what the checkpoint holds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document
from zoo.tensors import DTYPES, random_array

import tfckpt
from tfckpt.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPT = """
import keras

def build_model():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2), keras.layers.Dropout(0.5)]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model

def number():
    return 7
"""
ARRAYS = sorted({*DTYPES} - {"bfloat16", "int4", "uint4", "float8_e5m2", "float8_e4m3fn"})
TENSORS = sorted({*DTYPES} - {"complex128", "int4", "uint4"})


def run(*arguments: object) -> int:
    return main(["tfckpt", "convert", *map(str, arguments)])


def save(prefix: str, content: dict[str, Any]) -> str:
    """By TensorFlow, each value under its key."""
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(content),
        shape_and_slices=[""] * len(content),
        tensors=[tf.constant(value) for value in content.values()],
    )
    return prefix


def random_values(dtypes: list[str]) -> dict[str, Any]:
    shapes: list[tuple[int, ...]] = [(), (3,), (0, 2), (2, 3, 5)]
    return {
        f"{dtype}/v{number}": random_array(number, dtype, shape)
        for number, (dtype, shape) in enumerate((d, s) for d in dtypes for s in shapes)
    }


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Names may have a first component in front."""
    names = {name.removeprefix("model/"): value for name, value in found.items()}
    assert names.keys() == expected.keys()
    for name, value in expected.items():
        assert (names[name].dtype, names[name].shape) == (value.dtype, value.shape), name
        assert names[name].tobytes() == value.tobytes(), name


def test_numpy_reads_every_bit(tmp_path: Path) -> None:
    content = random_values(ARRAYS)
    prefix = save(f"{tmp_path}/all", content)
    assert run(prefix, tmp_path / "all.npz") == 0
    with np.load(tmp_path / "all.npz", allow_pickle=False) as archive:
        same(dict(archive), content)


def test_safetensors_reads_every_bit(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    content = random_values(TENSORS)
    prefix = save(f"{tmp_path}/all", content)
    assert run(prefix, tmp_path / "all.safetensors") == 0
    found = {}
    raw = (tmp_path / "all.safetensors").read_bytes()
    for name, info in safetensors.deserialize(raw):
        value = content[name.removeprefix("model/")]
        assert tuple(info["shape"]) == value.shape
        found[name] = np.frombuffer(bytes(info["data"]), value.dtype).reshape(value.shape)
    same(found, content)


def test_safetensors_types_are_told(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    content = {"k": np.arange(3, dtype=np.int16), "b": np.array(True), "x": np.float64(0.1)}
    prefix = save(f"{tmp_path}/few", content)
    assert run(prefix, tmp_path / "few.safetensors") == 0
    found = numpy.load_file(tmp_path / "few.safetensors")
    same(found, {name: np.asarray(value) for name, value in content.items()})


@pytest.mark.parametrize(
    ("target", "content"),
    [
        ("a.npz", {"text": np.array([b"a"], object)}),
        ("a.npz", {"x.npy": np.zeros(2)}),
        ("a.npz", {"b": random_array(0, "bfloat16", (2,))}),
        ("a.safetensors", {"text": np.array([b"a"], object)}),
        ("a.safetensors", {"c": np.zeros(2, np.complex128)}),
        ("a.pt", {"a": np.zeros(2)}),
        ("a.h5", {"a": np.zeros(2)}),
        ("a.weights.h5", {"a": np.zeros(2)}),
    ],
)
def test_what_a_format_cannot_hold_is_refused_with_what_to_do(
    tmp_path: Path, target: str, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = save(f"{tmp_path}/old", content)
    before = sorted(tmp_path.iterdir())
    assert run(prefix, tmp_path / target) in (1, 2)
    assert "--" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.weights.h5"])
def test_nothing_is_written_over(tmp_path: Path, name: str) -> None:
    prefix = save(f"{tmp_path}/old", {"a": np.zeros(2)})
    target = tmp_path / name
    target.symlink_to("nowhere")
    model = ["--model", "no:model"] if name.endswith("h5") else []
    assert run(prefix, target, *model) == 1
    assert target.is_symlink()


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors"])
def test_ctrl_c_leaves_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfckpt.stored.bundles.bundle import Bundle

    prefix = save(f"{tmp_path}/old", random_values(["float32"]))
    before = sorted(tmp_path.iterdir())
    calls = iter(range(9))

    def read(self: Bundle, key: str, original: Callable[..., Any] = Bundle.read) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return original(self, key)

    monkeypatch.setattr(Bundle, "read", read)
    assert run(prefix, tmp_path / name) == 130
    assert sorted(tmp_path.iterdir()) == before


def test_equal_checkpoints_make_equal_files(tmp_path: Path) -> None:
    prefix = save(f"{tmp_path}/old", random_values(["float32", "int64"]))
    for suffix in ("npz", "safetensors"):
        files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
        assert [run(prefix, file) for file in files] == [0, 0]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_plan_with_errors_writes_nothing(tmp_path: Path) -> None:
    prefix = save(f"{tmp_path}/old", {"a": np.zeros(2)})
    found = document("convert", prefix, tmp_path / "a.npz", "--include", "b", status=1)
    assert (found["written"], found["files"], found["plan"]["ok"]) == (False, [], False)
    assert not (tmp_path / "a.npz").exists()


def test_any_other_name_is_a_checkpoint(tmp_path: Path) -> None:
    content = random_values(["float32"])
    prefix = save(f"{tmp_path}/old", content)
    assert run(prefix, tmp_path / "v1.5-ckpt") == 0
    reader = tf.train.load_checkpoint(f"{tmp_path}/v1.5-ckpt")
    keys = reader.get_variable_to_shape_map()
    found = {
        key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): np.asarray(reader.get_tensor(key))
        for key in keys
        if not key.startswith("_CHECKPOINTABLE")
    }
    same(found, content)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "convert_script.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    yield importlib.import_module("convert_script")
    sys.modules.pop("convert_script")


def test_keras_loads_its_weights(script: Any, tmp_path: Path) -> None:
    model = script.build_model()
    prefix = tfckpt.Checkpoint(model=model).save(f"{tmp_path}/old/ckpt")
    target = tmp_path / "new.weights.h5"
    found = document("convert", prefix, target, "--model", "convert_script:build_model")
    assert (found["files"], found["written"]) == (["new.weights.h5"], True)
    other = script.build_model()
    other.load_weights(target)
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    assert all(one.tobytes() == two.tobytes() for one, two in pairs)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if "pycache" not in name] == [
        "convert_script.py",
        "new.weights.h5",
        "old",
    ]


@pytest.mark.parametrize(
    "flags", [[], ["--model", "convert_script:number"], ["--model", "no_such:thing"]]
)
def test_weights_need_a_model(script: Any, tmp_path: Path, flags: list[str]) -> None:
    prefix = save(f"{tmp_path}/old", {"a": np.zeros(2)})
    assert run(prefix, tmp_path / "new.weights.h5", *flags) == 2
    assert not (tmp_path / "new.weights.h5").exists()


@pytest.fixture
def trained(flavour: Any, stop: Any, tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Where the callback saves values and the place in the data, and the kernel."""
    from tfckpt import callbacks

    layers = [flavour.layers.Dense(2, name="d"), flavour.layers.Dropout(0.5, name="drop")]
    model = flavour.Sequential([flavour.Input((4,)), *layers])
    model.compile("adam", "mse")
    data = tf.data.Dataset.from_tensor_slices((tf.ones((8, 4)), tf.ones((8, 2)))).batch(4)
    saves = callbacks.resume(model, tmp_path / "run", save_freq=1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, epochs=1, verbose=0, callbacks=[saves, stop(0, 1)])
    return tmp_path / "run", model.get_weights()[0]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_run_of_the_callback_is_written_without_what_is_no_tensor(
    trained: Any, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, kernel = trained
    target = tmp_path / f"new{suffix}"
    assert run(directory, target) == 0
    error = capsys.readouterr().err
    assert f"left out, because {suffix} can hold only tensors: training/iterator" in error
    if suffix == ".npz":
        found = np.load(target)
    else:
        found = pytest.importorskip("safetensors.numpy").load_file(target)
    assert "training/iterator" not in found
    np.testing.assert_array_equal(found["model/d/kernel"], kernel)


def test_nothing_but_what_is_no_tensor_is_refused(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(trained[0], tmp_path / "new.npz", "--include", "training/iterator") == 2
    assert "no selected value is a tensor, and .npz can hold" in capsys.readouterr().err
    assert not (tmp_path / "new.npz").exists()


def test_names_and_roles_survive_safetensors(flavour: Any, tmp_path: Path) -> None:
    from tfckpt.stored.formats.open import open_checkpoint

    def net(name: str) -> Any:
        return flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name=name)])

    generator, critic = net("g"), net("c")
    optimizer = flavour.optimizers.Adam()
    optimizer.build(generator.trainable_variables)
    prefix = tfckpt.Checkpoint(
        generator=generator,
        discriminator=critic,
        generator_optimizer=optimizer,
        step=tf.Variable(7),
    ).save(f"{tmp_path}/gan/ckpt")
    assert run(prefix, tmp_path / "gan.safetensors") == 0
    with open_checkpoint(prefix) as old, open_checkpoint(f"{tmp_path}/gan.safetensors") as new:
        expected = {name: entry.role for name, entry in old.inventory.entries.items()}
        assert {name: entry.role for name, entry in new.inventory.entries.items()} == expected
        assert {"generator/g/kernel", "step", "generator_optimizer/iterations"} <= expected.keys()
    assert main(["tfckpt", "diff", prefix, f"{tmp_path}/gan.safetensors"]) == 0
    step, fresh = tf.Variable(0), net("g")
    policy = {"include": ["generator/**", "step"], "on_unexpected": "ignore", "api": "read"}
    config = {
        "version": 1,
        "restore": {"path": f"{tmp_path}/gan.safetensors", "policy": policy},
    }
    tfckpt.restore(config, generator=fresh, discriminator=net("c"), step=step)
    assert int(step) == 7
    np.testing.assert_array_equal(fresh.get_weights()[0], generator.get_weights()[0])
