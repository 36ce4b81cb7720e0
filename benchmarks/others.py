"""Other libraries, each with the values as arrays of its own kind, without a copy.

None is a dependency: the extra ``bench`` installs them, and who is absent is left out.
"""

from __future__ import annotations

import warnings
from typing import Any

from benchmarks.contestants import Contestant


class OfArrays(Contestant):
    """One that knows of no variables.

    Attributes:
        arrays: the values by name. They share memory with the variables, so they are not kept for
            longer than a turn: a restore into the variables leaves them the old values.
    """

    def ready(self) -> None:
        self.arrays = self.subject.arrays()

    def clear(self) -> None:
        self.arrays = {}
        super().clear()


class Safetensors(OfArrays):
    name = "safetensors"
    needs = ("safetensors",)

    def save(self) -> None:
        from safetensors.numpy import save_file

        save_file(self.arrays, f"{self.prefix}.safetensors")

    def restore(self) -> Any:
        from safetensors.numpy import load_file

        return load_file(f"{self.prefix}.safetensors")


class Orbax(OfArrays):
    name = "Orbax StandardCheckpointer"
    needs = ("orbax", "jax")

    def ready(self) -> None:
        import orbax.checkpoint

        super().ready()
        self.checkpointer = orbax.checkpoint.StandardCheckpointer()

    def save(self) -> None:
        self.checkpointer.save(self.prefix, self.arrays)
        self.checkpointer.wait_until_finished()

    def restore(self) -> Any:
        return self.checkpointer.restore(self.prefix, self.arrays)

    def clear(self) -> None:
        if hasattr(self, "checkpointer"):
            self.checkpointer.close()
        super().clear()


class Torch(OfArrays):
    name = "torch.save"
    needs = ("torch",)

    def ready(self) -> None:
        import torch

        super().ready()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the arrays must not be written to, and are not
            self.arrays = {name: torch.from_numpy(array) for name, array in self.arrays.items()}

    def save(self) -> None:
        import torch

        torch.save(self.arrays, f"{self.prefix}.pt")

    def restore(self) -> Any:
        import torch

        return torch.load(f"{self.prefix}.pt", weights_only=True)


class TorchDistributed(Torch):
    name = "torch DCP"

    def ready(self) -> None:
        super().ready()
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")

    def save(self) -> None:
        from torch.distributed import checkpoint

        checkpoint.save(self.arrays, checkpoint_id=self.prefix, no_dist=True)

    def restore(self) -> Any:
        import torch
        from torch.distributed import checkpoint

        into = {name: torch.empty_like(tensor) for name, tensor in self.arrays.items()}
        checkpoint.load(into, checkpoint_id=self.prefix, no_dist=True)
        return into


OTHERS: tuple[type[Contestant], ...] = (Safetensors, Orbax, Torch, TorchDistributed)
