"""`.lora.h5`: LoRA factors by the index of their layer, as KerasHub writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import keras
import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def block(name: str) -> Any:
    dense = keras.layers.EinsumDense
    return keras.Sequential(
        [keras.Input((4,)), dense("ab,bc->ac", 4, name="query"), keras.layers.Dense(4, name="key")],
        name=name,
    )


def backbone(rank: int, layer: str = "query", blocks: int = 2) -> Any:
    """A model whose layers have names that are not unique, as in KerasHub's."""
    inputs = outputs = keras.Input((4,))
    for number in range(blocks):
        outputs = block(f"block_{number}")(outputs)
    model = keras.Model(inputs, outputs)
    model.trainable = True
    for each in model.layers[1:] if rank else []:
        each.get_layer(layer).enable_lora(rank)
    return model


def written(path: Path, factors: dict[str, Any], rank: Any = RANK) -> str:
    """A file of KerasHub 0.32: index and factor → value."""
    with h5py.File(path / "gemma.lora.h5", "w") as file:
        file["lora/vars/rank"] = rank
        for key, value in factors.items():
            index, name = key.split("/")
            file[f"lora/{index}/vars/{name}"] = value
    return str(path / "gemma.lora.h5")


def drawn(rank: int = RANK) -> dict[str, Any]:
    """Below the backbone are with weights: block_0, its key, its query, block_1, key, query."""
    random = np.random.default_rng(1)
    shapes = {"lora_kernel_a": (4, rank), "lora_kernel_b": (rank, 4)}
    return {
        f"{index}/{name}": random.normal(size=shape).astype("float32")
        for index in (2, 5)
        for name, shape in shapes.items()
    }


class Task(keras.Model):
    """A backbone with a head."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.head, self.backbone = keras.layers.Dense(2), backbone

    def call(self, inputs: Any) -> Any:
        return self.head(self.backbone(inputs))


@pytest.mark.parametrize("in_task", [False, True])
def test_the_factors_are_filled_and_nothing_else(tmp_path: Path, in_task: bool) -> None:
    inner, factors = backbone(RANK), drawn()
    assert [n for n, layer in enumerate(listed(inner)) if layer.name == "query"] == [2, 5]
    model = Task(inner) if in_task else inner
    model(np.ones((1, 4)))
    model.compile("adam", "mse")
    before = {id(v): v.numpy() for v in model.variables if "lora" not in v.path}
    report = tfckpt.restore(written(tmp_path, factors), model)
    assert dict(report.counts) == {tfckpt.Status.LOADED: 4}
    for number, index in enumerate((2, 5)):
        query = inner.get_layer(f"block_{number}").get_layer("query")
        for name in ("lora_kernel_a", "lora_kernel_b"):
            assert np.array_equal(getattr(query, name).numpy(), factors[f"{index}/{name}"])
    after = [v.numpy() for v in model.variables if "lora" not in v.path]
    assert all(np.array_equal(*pair) for pair in zip(before.values(), after, strict=True))


def listed(model: Any) -> list[Any]:
    """The layers of which KerasHub counts the index."""
    return [layer for layer in model._flatten_layers(include_self=False) if layer.weights]


# What is restored into → what the refusal says.
REFUSED = {
    "no model here has any": lambda: backbone(0),
    "model has them in 2 layers": lambda: backbone(RANK, "key"),
    "model has them in 3 layers": lambda: backbone(RANK, blocks=3),
    "those of the model have another rank": lambda: backbone(RANK + 1),
}


@pytest.mark.parametrize("says", REFUSED)
def test_another_model_is_refused(tmp_path: Path, says: str) -> None:
    model = REFUSED[says]()
    before = [value.numpy() for value in model.variables]
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match=says) as error:
        tfckpt.restore(written(tmp_path, drawn()), model)
    assert "LoRA factors of rank 2 for 2 layers" in str(error.value)
    assert "enable_lora(2)" in str(error.value)
    assert all(
        np.array_equal(*p) for p in zip(before, [v.numpy() for v in model.variables], strict=True)
    )


def test_two_models_that_both_fit_are_refused(tmp_path: Path) -> None:
    models = {"one": backbone(RANK), "other": backbone(RANK)}
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match="several fit"):
        tfckpt.restore(written(tmp_path, drawn()), **models)


def test_factors_of_other_shapes_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, drawn(RANK + 1))
    with pytest.raises(tfckpt.RefusedError, match="MISMATCH"):
        tfckpt.restore(path, backbone(RANK))


def test_a_file_of_another_kind_is_refused_as_one(tmp_path: Path) -> None:
    for rank, factors in ((np.array([2, 3]), drawn()), (RANK, {})):
        with pytest.raises(tfckpt.TfckptError, match="nothing was restored"):
            tfckpt.restore(written(tmp_path, factors, rank), backbone(RANK))


def test_one_layer_is_called_one(tmp_path: Path) -> None:
    first = {key: value for key, value in drawn().items() if key[0] == "2"}
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match=r"for 1 layer, but .* 2 layers"):
        tfckpt.restore(written(tmp_path, first), backbone(RANK))
