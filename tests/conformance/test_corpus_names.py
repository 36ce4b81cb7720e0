"""Real checkpoints without an object graph: their values by name, the optimizers' state apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from zoo.corpus import CORPUS, ITEMS, digest, expected_of, prefix_of

from tfckpt.core.inventory import Role
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {"tf1_saver_v1": "tf1_saver_v1", "tf1_saver_v2": "tf1_saver"}
UNGRAPHED = [
    name
    for name, item in ITEMS.items()
    if item["kind"] in {*KINDS, "saved_model_variables"} and not item["has_object_graph"]
]
# Of each, values with the names that their writers' sources imply.
NAMES = {
    "v1_serving_half_plus_two": {"a": "model/a"},
    "tf1_serving_export_v2": {"Variable_1": "model/Variable_1"},
    "tf1_cadrl_iros18": {
        "layer1/kernel:0": "model/layer1/kernel",
        "layer1/kernel/Adam:0": "optimizer/momentum/layer1/kernel",
        "rnn/lstm_cell/bias/Adam_1:0": "optimizer/velocity/rnn/lstm_cell/bias",
        "beta1_power:0": "optimizer/beta1_power",
        "step:0": "model/step",
    },
    "tf1_tfx_est_keras_opt": {
        "dnn/logits/bias": "model/dnn/logits/bias",
        "training/Adagrad/dnn/logits/bias/accumulator": (
            "optimizer/adagrad/accumulator/dnn/logits/bias"
        ),
        "training/Ftrl/linear/linear_model/bias_weights/linear": (
            "optimizer/ftrl/linear/linear/linear_model/bias_weights"
        ),
        "training/Ftrl/iter": "optimizer/ftrl/iterations",
        "global_step": "optimizer/iterations",
    },
    "tf1_tfx_est_2019_2shard": {
        "dnn/logits/kernel/Adagrad": "optimizer/adagrad/accumulator/dnn/logits/kernel",
        "linear/linear_model/bias_weights/Ftrl_1": (
            "optimizer/ftrl/linear/linear/linear_model/bias_weights"
        ),
    },
    "tf1_midas_adamw": {
        "Variable_3": "model/Variable_3",
        "AdamW/Variable_3/m": "optimizer/momentum/Variable_3",
        "AdamW/iter": "optimizer/iterations",
        "AdamW/weight_decay": "optimizer/weight_decay",
    },
    "tf1_neurocore": {
        "C_score/0/w/Adam": "optimizer/momentum/C_score/0/w",
        "CL_scale/Adam_1": "optimizer/velocity/CL_scale",
        "cond/beta2_power": "optimizer/beta2_power",
    },
    "sm_tfx_keras": {
        "layer_with_weights-1/kernel/.ATTRIBUTES/VARIABLE_VALUE": "model/dense_1/kernel",
        "layer_with_weights-1/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE": (
            "optimizer/momentum/dense_1/kernel"
        ),
        "keras_api/metrics/1/total/.ATTRIBUTES/VARIABLE_VALUE": (
            "metrics/sparse_categorical_accuracy/total"
        ),
    },
    "sm_rust_keras_single": {
        "layer_with_weights-0/bias/.ATTRIBUTES/VARIABLE_VALUE": "model/test_in/bias",
        "keras_api/metrics/0/count/.ATTRIBUTES/VARIABLE_VALUE": "metrics/loss/count",
    },
    "tf2_gan_index_only": {
        "discriminator/layer_with_weights-0/bias/.OPTIMIZER_SLOT/discriminator_optimizer/m"
        "/.ATTRIBUTES/VARIABLE_VALUE": (
            "discriminator_optimizer/momentum/discriminator/layer_with_weights-0/bias"
        ),
    },
    "tf1_t5_bfloat16": {
        "shared/embedding_slot_v": "optimizer/velocity/shared/embedding",
        "decoder/block_000/layer_000/SelfAttention/v": (
            "model/decoder/block_000/layer_000/SelfAttention/v"
        ),
    },
}
CLASSES = {
    "tf1_cadrl_iros18": {"optimizer": "adam"},
    "tf1_tfx_est_keras_opt": {"optimizer/adagrad": "adagrad", "optimizer/ftrl": "ftrl"},
    "tf1_midas_adamw": {"optimizer": "adam_w"},
    "sm_tfx_keras": {"optimizer": "adam"},
    "tf1_t5_bfloat16": {"optimizer": "adafactor"},
}


@pytest.fixture(autouse=True)
def _needs(corpus: Path) -> None:
    """Skips, saying so, where the corpus is absent."""


@pytest.mark.parametrize("name", UNGRAPHED)
def test_every_value_is_there_once_and_reads_as_tensorflow_reads_it(name: str) -> None:
    item, expected = ITEMS[name], expected_of(name)
    with open_checkpoint(prefix_of(name)) as stored:
        entries = stored.inventory.entries.values()
        program = (CORPUS / name / "saved_model.pb").is_file()
        assert stored.kind == ("saved_model" if program else KINDS.get(item["kind"], "tf1_saver"))
        if item["tf_lists"]:
            assert sorted(entry.key for entry in entries) == sorted(expected)
        for entry in entries:
            want = expected.get(entry.key, {"error": "TensorFlow does not list it"})
            if "error" not in want:
                assert (entry.dtype, list(entry.shape)) == (want["dtype"], want["shape"])
                assert digest(stored.values.read(entry.key), entry.dtype) == want["sha256"]


@pytest.mark.parametrize("name", [name for name in ITEMS if ITEMS[name].get("prefix")])
def test_the_slots_are_told_from_the_weights(name: str) -> None:
    with open_checkpoint(prefix_of(name)) as stored:
        entries = stored.inventory.entries
        slots = [e for e in entries.values() if e.role is Role.SLOT and e.of]
        if name != "tf1_musicnn_index_only":  # of which TensorFlow lists nothing
            assert len(slots) == ITEMS[name]["n_slots"]
        variables = [entries.get(slot.of) for slot in slots]
        pairs = zip(slots, variables, strict=True)
        assert all(variable and slot.shape == variable.shape for slot, variable in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_that_the_writer_meant(name: str) -> None:
    with open_checkpoint(prefix_of(name)) as stored:
        names = {entry.key: entry.name for entry in stored.inventory.entries.values()}
        assert {key: names[key] for key in NAMES[name]} == NAMES[name]
        assert dict(stored.inventory.optimizers) == CLASSES.get(
            name, dict(stored.inventory.optimizers)
        )


@pytest.mark.parametrize("name", ["sm_serving_cpu", "sm_tfx_keras", "sm_cartpole_policy"])
def test_a_saved_model_is_opened_by_its_directory(name: str) -> None:
    prefix = prefix_of(name)
    with open_checkpoint(prefix) as inside:
        names = list(inside.inventory.entries)
    with open_checkpoint(prefix.removesuffix("/variables/variables")) as stored:
        assert stored.kind == "saved_model"
        assert list(stored.inventory.entries) == names
