"""`tfckpt convert`: what NumPy, safetensors and Keras read is what the checkpoint holds."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document
from zoo.tensors import DTYPES, random_array

import tfckpt
from tfckpt.cli.main import main
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.formats.open import open_checkpoint

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


SCRIPTS = """
import {flavour} as keras

def build(compiled=True):
    layers = [keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    if compiled:
        model.compile("adam", "mse")
    return model

def plain():
    return build(compiled=False)
"""


@pytest.fixture
def builders(flavour: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import importlib

    (tmp_path / "builders.py").write_text(SCRIPTS.format(flavour=flavour.__name__))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("builders")
    sys.modules.pop("builders")


@pytest.fixture(scope="module")
def of_keras_2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """The files that tf_keras writes, and the weights in them."""
    keras = pytest.importorskip("tf_keras")
    layers = [keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", "mse")
    model.fit(np.ones((2, 4)), np.ones((2, 2)), verbose=0)
    directory = tmp_path_factory.mktemp("keras2")
    model.save_weights(directory / "weights.h5")
    model.save(directory / "model.h5")
    model.save(directory / "model.keras")
    model.save(directory / "saved_model")
    model.save_weights(str(directory / "tensorflow"))
    return directory, model.get_weights()


@pytest.mark.parametrize("build", ["build", "plain"])
@pytest.mark.parametrize(
    "source", ["weights.h5", "model.h5", "model.keras", "saved_model", "tensorflow"]
)
def test_keras_loads_weights_of_every_source_of_keras_2(
    of_keras_2: Any, builders: Any, tmp_path: Path, source: str, build: str
) -> None:
    directory, weights = of_keras_2
    target = tmp_path / "new.weights.h5"
    assert run(directory / source, target, "--model", f"builders:{build}") == 0
    model = getattr(builders, build)()
    model.load_weights(target)
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_the_checkpoint_lacks_of_an_optimizer_is_said(
    of_keras_2: Any, builders: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = of_keras_2
    target = tmp_path / "new.weights.h5"
    assert run(directory / "weights.h5", target, "--model", "builders:build") == 0
    assert (
        "not in the checkpoint; written with the model's own value: optimizer/iterations, "
        "optimizer/learning_rate"
    ) in capsys.readouterr().err


def test_a_weight_that_is_not_in_the_checkpoint_is_refused(
    builders: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tfckpt.Checkpoint(model=tf.Module()).write(f"{tmp_path}/other")
    assert run(prefix, tmp_path / "new.weights.h5", "--model", "builders:plain") == 1
    assert "model/hidden/kernel" in capsys.readouterr().err
    assert not (tmp_path / "new.weights.h5").exists()


def test_a_policy_of_a_config_says_what_goes_into_the_weights(
    builders: Any, tmp_path: Path
) -> None:
    old = builders.build()
    kernel = tf.Variable(tf.random.normal((4, 3)))
    body = tf.train.Checkpoint(kernel=kernel, bias=tf.Variable(tf.ones(3)))
    prefix = tf.train.Checkpoint(model=tf.train.Checkpoint(body=body)).write(f"{tmp_path}/old")
    (tmp_path / "c.yaml").write_text(
        "version: 1\npolicies:\n  p:\n    include: ['model/hidden/**']\n"
        "    rename: [{checkpoint: 'model/body/**', model: 'model/hidden/**'}]\n"
    )
    flags = ["--config", tmp_path / "c.yaml", "--policy", "p", "--model", "builders:plain"]
    assert run(prefix, tmp_path / "new.weights.h5", *flags) == 0
    model = builders.plain()
    model.load_weights(tmp_path / "new.weights.h5")
    np.testing.assert_array_equal(model.get_weights()[0], kernel.numpy())
    assert old.get_weights()[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("flags", "says", "status"),
    [
        (["--config", "no_such.yaml"], "no_such.yaml: there is no config file", 1),
        (["--config", "c.yaml", "--policy", "q"], "has no policy 'q'; it has p", 2),
        (["--policy", "p"], "--policy needs --config, the file that has the policy", 2),
        (
            ["--config", "c.yaml", "--include", "model/**"],
            "the model decides what is written; remove --include",
            2,
        ),
    ],
)
def test_rules_for_weights_are_honoured_or_refused(
    builders: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    says: str,
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    prefix = tfckpt.Checkpoint(model=builders.build()).write(f"{tmp_path}/old")
    (tmp_path / "c.yaml").write_text("version: 1\npolicies: {p: {include: ['model/**']}}\n")
    model = ["--model", "builders:build"]
    assert run(prefix, "new.weights.h5", *model, *flags) == status
    assert says in capsys.readouterr().err
    assert not (tmp_path / "new.weights.h5").exists()


KERNEL = np.arange(6, dtype="float32").reshape(2, 3)
BIAS = np.arange(3, dtype="int64")
HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "dense/kernel": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "model/dense/bias": {"dtype": "I64", "shape": [3], "data_offsets": [24, 48]},
}


def write(path: Path, header: Any, data: bytes = KERNEL.tobytes() + BIAS.tobytes()) -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return str(path)


def test_values_are_those_of_the_file(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "w.safetensors", HEADER)) as opened:
        entries = opened.inventory.entries
        assert list(entries) == ["model/dense/kernel", "model/dense/bias"]
        found = [opened.values.read(entry.key) for entry in entries.values()]
    assert found[0].dtype == KERNEL.dtype
    assert (found[0] == KERNEL).all()
    assert (found[1] == BIAS).all()


def changed(**fields: Any) -> dict[str, Any]:
    return {**HEADER, "dense/kernel": {**HEADER["dense/kernel"], **fields}}


@pytest.mark.parametrize(
    "header",
    [
        changed(dtype="F99"),
        changed(shape=[2, 4]),
        changed(shape=[-2, -3]),
        changed(shape=[2, 3.0]),
        changed(shape=None),
        changed(data_offsets=[0, 28]),
        changed(data_offsets=[24, 48]),
        changed(data_offsets=[1, 25]),
        changed(data_offsets=[0]),
        b'{"a": {}, "a": {}}',
        b'{"a": ' * 100_000,
        b"{not json",
    ],
)
def test_a_header_that_contradicts_itself_is_damaged(tmp_path: Path, header: Any) -> None:
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(write(tmp_path / "w.safetensors", header))


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    whole = open(write(path, HEADER), "rb").read()  # noqa: PTH123, SIM115
    for end in (len(whole) - 1, len(whole) - 48, 40, 9, 8, 4, 0):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError):
            open_checkpoint(str(path))
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(str(path))


def test_roles_are_those_that_the_metadata_tells(tmp_path: Path) -> None:
    metadata = {"tfckpt.roles": '{"model/dense/bias": "state"}'}
    path = write(tmp_path / "w.safetensors", {**HEADER, "__metadata__": metadata})
    with open_checkpoint(path) as opened:
        found = {name: entry.role.value for name, entry in opened.inventory.entries.items()}
    assert found == {"dense/kernel": "weight", "model/dense/bias": "state"}


@pytest.mark.parametrize("roles", ["[]", "{", '{"a": "king"}', '{"a": []}', 7, "[" * 100_000])
def test_roles_that_are_none_are_damage(tmp_path: Path, roles: Any) -> None:
    header = {**HEADER, "__metadata__": {"tfckpt.roles": roles}}
    path = write(tmp_path / "w.safetensors", header)
    with pytest.raises(DamagedCheckpointError, match="roles"):
        open_checkpoint(path)


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    """As other libraries write a large model: `model-00001-of-00002.safetensors`, and an index."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    names = [f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    values = {"dense/kernel": KERNEL, "dense/bias": BIAS}
    for name, (key, value) in zip(names, values.items(), strict=True):
        numpy_files.save_file({key: value}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = dict(zip(values, names, strict=True))
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": weight_map}))
    found = tfckpt.inspect(index)
    assert [*found.inventory.entries] == ["model/dense/kernel", "model/dense/bias"]
    with open_checkpoint(str(index)) as opened:
        assert (opened.values.read("dense/kernel") == KERNEL).all()
        assert (opened.values.read("dense/bias") == BIAS).all()
    assert [one.prefix for one in tfckpt.list_checkpoints(tmp_path)] == [str(index)]
    assert tfckpt.verify(index)[0].ok

    import tensorflow as tf

    dense = tf.train.Checkpoint(kernel=tf.Variable(0 * KERNEL), bias=tf.Variable(0 * BIAS))
    tfckpt.restore(index, model=tf.train.Checkpoint(dense=dense))
    np.testing.assert_array_equal(dense.kernel.numpy(), KERNEL)
    np.testing.assert_array_equal(dense.bias.numpy(), BIAS)

    (tmp_path / names[1]).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"{names[1]}: does not exist") as raised:
        tfckpt.inspect(index)
    assert "Copy all shards" in str(raised.value)


def test_a_value_in_two_shards_is_damage(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, HEADER)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    with pytest.raises(DamagedCheckpointError, match="is in two shards"):
        open_checkpoint(str(index))
