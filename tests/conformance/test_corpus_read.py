"""Real checkpoints that other people wrote: read, shown, and restored into models built anew."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.corpus import CORPUS, ITEMS, PROJECT, digest, expected_of, prefix_of
from zoo.rebuilt import (
    SONNET,
    Module,
    autoencoder,
    deepconsensus,
    dense,
    music,
)
from zoo.variables import inner

import tfckpt
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.live.inventory import collect
from tfckpt.stored.bundles.bundle import Bundle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


OTHER_FORMATS = ("tf1_saver_v1", "h5", "keras_v3")
BUNDLES = [name for name, item in ITEMS.items() if item["kind"] not in OTHER_FORMATS]
NOT_BUNDLES = [name for name, item in ITEMS.items() if item["kind"] in OTHER_FORMATS]


@pytest.fixture(autouse=True)
def _needs(corpus: Path) -> None:
    """Skips, saying so, where the corpus is absent."""


def test_the_corpus_is_whole() -> None:
    assert len(BUNDLES) >= 36
    assert len(NOT_BUNDLES) >= 4


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_reads_as_tensorflow_reads_it(name: str) -> None:
    expected = expected_of(name)
    absent = {f"{CORPUS / name}/{file}" for file in ITEMS[name]["absent_files"]}
    with Bundle.open(prefix_of(name)) as bundle:
        assert set(bundle.missing_files) == absent
        if ITEMS[name]["tf_lists"]:
            assert {key: (e.dtype, list(e.shape)) for key, e in bundle.entries.items()} == {
                key: (e["dtype"], e["shape"]) for key, e in expected.items()
            }
        for key, entry in bundle.entries.items():
            want = expected.get(key, {"error": "TensorFlow does not list it"})
            if "error" in want:
                with pytest.raises(DamagedCheckpointError, match="missing") as caught:
                    bundle.read(key)
                assert caught.value.path in absent
                assert caught.value.name == key
            else:
                assert digest(bundle.read(key), entry.dtype) == want["sha256"], key
        if absent:
            with pytest.raises(DamagedCheckpointError, match="missing"):
                bundle.verify(bundle.entries)
        else:
            bundle.verify(bundle.entries)


@pytest.mark.parametrize("name", NOT_BUNDLES)
def test_another_format_is_no_bundle(name: str) -> None:
    for file in ITEMS[name]["files"]:
        with pytest.raises(CheckpointError) as caught:
            Bundle.open(str(CORPUS / name / file))
        assert caught.value.path == str(CORPUS / name / file)


def test_the_whole_corpus_is_read_without_tensorflow() -> None:
    code = (
        "import sys; from tfckpt.stored.bundles.bundle import Bundle\n"
        "for prefix in sys.argv[1:]:\n"
        "    bundle = Bundle.open(prefix)\n"
        "    if not bundle.missing_files:\n"
        "        for key in bundle.entries: bundle.read(key)\n"
        "print('tensorflow' in sys.modules)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, *map(prefix_of, BUNDLES)],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT,
    )
    assert out.stdout == "False\n"


def path_of(name: str) -> str:
    item = ITEMS[name]
    inside = item["prefix"] if "prefix" in item else next(iter(item["files"]))
    return f"{CORPUS / name}/{inside}"


def whole(name: str) -> bool:
    return not ITEMS[name]["absent_files"]


@pytest.mark.parametrize("name", ITEMS)
def test_inspect_in_every_view(name: str) -> None:
    path, status = path_of(name), 0 if whole(name) else 1
    found = document("inspect", path, status=status)
    by_key = {value["key"]: value for value in found["values"]}
    for key, tensor in expected_of(name).items():
        if key in by_key and "error" not in tensor and by_key[key]["shape"] is not None:
            assert by_key[key]["shape"] == tensor["shape"], key
    for flags in ((), ("--values",), ("--keys",)):
        ended = run("inspect", path, *flags)
        assert ended.status == status
        assert "Traceback" not in ended.err
        long = [line for line in ended.out.splitlines() if len(line) > 80]
        assert all(len(line.split()) == 1 for line in long), long  # a name, which is never broken
    if whole(name):
        statistics = document("inspect", path, "--values")["statistics"]
        known = {name for name, one in statistics.items() if one and "error" not in one}
        numbers = [value for value in found["values"] if value["dtype"].startswith("float")]
        assert known >= {value["name"] for value in numbers}


@pytest.mark.parametrize("name", ITEMS)
def test_verify_finds_nothing_or_what_is_missing(name: str) -> None:
    if whole(name):
        (found,) = document("verify", path_of(name))["checkpoints"]
        assert found["values"] > 0
    else:
        (found,) = document("verify", path_of(name), status=1)["checkpoints"]
        absent = {f"{CORPUS / name}/{file}" for file in ITEMS[name]["absent_files"]}
        assert {fault["file"] for fault in found["faults"]} == absent


VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOT = "/.OPTIMIZER_SLOT/optimizer/"
ADAM = {"m": "momentum", "v": "velocity"}


@pytest.fixture(autouse=True)
def _needs_models(corpus: Any) -> None:
    """Skips, saying so, where the corpus is absent."""


class Item:
    """One item of the corpus, and what its values are to be."""

    def __init__(self, name: str) -> None:
        self.path = prefix_of(name)
        self._expected = expected_of(name)

    def restore(self, policy: Mapping[str, Any], **objects: Any) -> Any:
        """Restore as a run does, which counts its saves; few of these files do."""
        restore = {"path": self.path, "policy": dict(policy)}
        return tfckpt.restore({"version": 1, "restore": restore}, **objects)

    def has(self, key: str, variable: Any) -> None:
        """Assert that a variable is, bit for bit, what stands under a key."""
        value = np.asarray(inner(variable).numpy())
        wanted = self._expected[key + VALUE]
        assert list(value.shape) == wanted["shape"], key
        assert digest(value, wanted["dtype"]) == wanted["sha256"], key


def layers_of(model: Any) -> list[Any]:
    return [layer for layer in model.layers if layer.weights]


def keys_of(layer: Any, number: int, below: str) -> dict[str, Any]:
    """Key in Keras 2's files → variable, of one layer of a functional or sequential model."""
    path = f"{below}layer_with_weights-{number}/{'cell/' if hasattr(layer, 'cell') else ''}"
    names = [variable.name.removesuffix(":0").rpartition("/")[2] for variable in layer.weights]
    return {path + name: variable for name, variable in zip(names, layer.weights, strict=True)}


def check_weights(item: Item, model: Any, below: str = "") -> None:
    for number, layer in enumerate(layers_of(model)):
        for key, variable in keys_of(layer, number, below).items():
            item.has(key, variable)


def check_slots(item: Item, model: Any, slots: Mapping[str, str], below: str = "") -> None:
    """Every slot of the optimizer, of every trained variable; slot in the file → its name."""
    live = collect({"model": model}).variables
    names = {id(inner(variable)): name for name, variable in live.items()}
    trained = {id(inner(variable)) for variable in model.trainable_weights}
    for number, layer in enumerate(layers_of(model)):
        for key, variable in keys_of(layer, number, below).items():
            if id(inner(variable)) in trained:
                name = names[id(inner(variable))].removeprefix("model/")
                for word, slot in slots.items():
                    item.has(f"{key}{SLOT}{word}", live[f"optimizer/{slot}/{name}"])


def test_an_optimizer_of_tensorflow_1_goes_on_as_keras_adam(flavour) -> None:
    item, model = Item("tf2_lstm_md_configjson"), music(flavour)
    model.compile(flavour.optimizers.Adam(1e-3), "mse")
    policy = {
        "exclude_checkpoint": ["optimizer/beta?_power"],
        "optimizer": {"hyperparameters": "config"},
    }
    item.restore(policy, model=model)
    check_weights(item, model)
    check_slots(item, model, {f"optimizer/{word}": slot for word, slot in ADAM.items()})
    item.has("optimizer/global_step", model.optimizer.iterations)
    # What TF1 kept as numbers, Keras computes from the step: it is the same step.
    steps = int(inner(model.optimizer.iterations)) + 1
    stored = tf.train.load_variable(item.path, f"optimizer/optimizer/beta1_power{VALUE}")
    assert stored == pytest.approx(0.9**steps, rel=1e-3, abs=1e-30)


def test_one_half_of_a_subclassed_model(flavour) -> None:
    item, model = Item("tf2_vae_cardio"), autoencoder(flavour)
    item.restore({"on_unexpected": "warn"}, encoder=model.encoder)
    check_weights(item, model.encoder, "encoder/")


def test_a_file_that_tells_no_names_is_restored_by_position(flavour) -> None:
    item, model = Item("tf2_deepconsensus_fc"), deepconsensus(flavour)
    model.compile(flavour.optimizers.Adam(), "mse")
    item.restore({"optimizer": {"hyperparameters": "config"}}, model=model)
    check_weights(item, model, "model/")
    check_slots(item, model, ADAM, "model/")
    item.has("optimizer/iter", model.optimizer.iterations)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("sm_tfx_keras", lambda k: dense(k, 4, 8, 8, 3)),
        (
            "sm_rust_keras_single",
            lambda k: dense(k, 5, 5, 5, 1, names=("test_in", None, "test_out")),
        ),
        ("tuner_tfx_iris", lambda k: dense(k, 4, 8, 8, 8, 3)),
    ],
)
def test_dense_layers_and_adam(name, build, flavour) -> None:
    item, model = Item(name), build(flavour)
    model.compile(flavour.optimizers.Adam(), "mse")
    item.restore({"optimizer": {"hyperparameters": "config"}}, model=model)
    check_weights(item, model)
    check_slots(item, model, ADAM)
    item.has("optimizer/iter", model.optimizer.iterations)


def test_a_saved_policy_of_an_agent_by_rules(flavour) -> None:
    """Its variables hang in a list; of the layers they come from, only their order is left."""
    item, model = Item("sm_cartpole_policy"), dense(flavour, 4, 64, 64, 9)
    names = [
        f"{layer}/{name}"
        for layer in ("dense", "dense_1", "dense_2")
        for name in ("kernel", "bias")
    ]
    rename = [
        {"checkpoint": f"model_variables/{index}", "model": f"model/{name}"}
        for index, name in enumerate(names)
    ]
    item.restore({"rename": rename, "exclude_checkpoint": ["train_step"]}, model=model)
    for index, variable in enumerate(model.weights):
        item.has(f"model_variables/{index}", variable)


def leaves(part: Any, path: str) -> dict[str, Any]:
    if isinstance(part, tf.Variable):
        return {path: part}
    items = enumerate(part) if isinstance(part, (list, tuple)) else vars(part).items()
    found = {}
    for key, below in items:
        if isinstance(below, (tf.Variable, list, tuple, Module)):
            found |= leaves(below, f"{path}/{key}")
    return found


@pytest.mark.parametrize("name", SONNET)
def test_a_module_of_sonnet(name) -> None:
    item, module = Item(name), Module(**SONNET[name])
    item.restore({}, module=module)
    found = leaves(module, "module")
    assert len(found) == len(module.variables)
    for key, variable in found.items():
        item.has(key, variable)
