"""What one side does not have at all: one reading, so it is left, and said.

That is an optimizer or a loss scale, if the other side has none left that it could be; slots that
the model's optimizer does not keep; hyperparameters; and seeds, integer counters and positions in
data, if the other side has none left that it could be. Weights are asked for, and so is everything
if the policy itself says ``on_missing: error`` or ``on_unexpected: error``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import LOSS_SCALE
from tfckpt.planning.checks.step import is_save_counter

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Inventory, Shape
    from tfckpt.policy import Policy

    Kind: TypeAlias = tuple[Role, str, Shape | None]

NO_STATE = "only in the model, whose optimizer stays as it is"
NO_OPTIMIZER = "only in the checkpoint, since the model has no such optimizer"
NO_SLOT = "only in the checkpoint, since the model's optimizer has no such slot"
NOT_TRAINED = "only in the checkpoint, since its variable is not trained now"
ONLY_LIVE = "only in the model, which keeps it"
ONLY_STORED = "only in the checkpoint, where it stays"
ONE_SIDED = (NO_STATE, NO_OPTIMIZER, NO_SLOT, NOT_TRAINED, ONLY_LIVE, ONLY_STORED)
OF_OPTIMIZERS = frozenset({Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER})


def kind(entry: Entry) -> Kind:
    """What two values have in common that may be one under two names."""
    return entry.role, entry.dtype, entry.shape


def asks(policy: Policy, key: str) -> bool:
    """Whether a policy itself says what to do about values that only one side has."""
    asserted = policy.assert_ is not None or policy.expect_partial
    return asserted or key in policy.model_fields_set


class OneSided:
    """Says of values without a counterpart whether they can be nothing else."""

    def __init__(self, policy: Policy, stored: Inventory, live: Inventory) -> None:
        self._sides = stored, live
        self._declared = policy.model_fields_set
        self._asks_missing, self._asks_unexpected = (
            asks(policy, "on_missing"),
            asks(policy, "on_unexpected"),
        )

    @cached_property
    def _optimizers(self) -> tuple[set[str], set[str]]:
        """The paths of the optimizers and loss scales of both sides."""
        stored, live = map(_optimizers, self._sides)
        return stored, live

    @cached_property
    def _slots(self) -> set[str]:
        entries = self._sides[1].entries.values()
        return {entry.slot for entry in entries if entry.role is Role.SLOT}

    def missing(self, live: Entry, *, rival: bool) -> str:
        """Why a live value is left as it is; ``""`` if it is asked for.

        ``rival``: whether a stored value that nothing uses is of its kind.
        """
        if self._asks_missing:
            return ""
        stored, other = self._optimizers
        if live.role in OF_OPTIMIZERS and optimizer_of(live, self._sides[1]) not in stored:
            return NO_STATE if stored <= other else ""
        return ONLY_LIVE if self._stands_alone(live, rival=rival) else ""

    def unexpected(self, stored: Entry, *, rival: bool) -> str:
        """Why a stored value is left where it is; ``""`` if it is asked for.

        ``rival``: whether a live value that nothing goes to is of its kind.
        """
        if self._asks_unexpected:
            return ""
        other, live = self._optimizers
        if stored.role in OF_OPTIMIZERS and optimizer_of(stored, self._sides[0]) not in live:
            return NO_OPTIMIZER if live <= other else ""
        if stored.role is Role.SLOT and not rival:
            if stored.of and self._sides[1].find(stored.of) is None:
                return ""
            return NOT_TRAINED if stored.of and stored.slot in self._slots else NO_SLOT
        return ONLY_STORED if self._stands_alone(stored, rival=rival) else ""

    def _stands_alone(self, entry: Entry, *, rival: bool) -> bool:
        if is_save_counter(entry):
            return "api" not in self._declared
        alone = entry.role in (Role.SEED, Role.ITERATOR) or _counts(entry)
        return entry.role is Role.HYPERPARAMETER or (alone and not rival)


def _optimizers(inventory: Inventory) -> set[str]:
    paths = {*inventory.optimizers}
    for entry in inventory.entries.values():
        plain = entry.role is Role.SLOT and paths and LOSS_SCALE not in entry.name
        if entry.role in OF_OPTIMIZERS and not plain:
            paths.add(optimizer_of(entry, inventory))
    return paths


def optimizer_of(entry: Entry, inventory: Inventory) -> str:
    """The path of the optimizer, or of the loss scale, that a value is of."""
    inside = [path for path in inventory.optimizers if entry.name.startswith(f"{path}/")]
    path = max(inside, key=len, default=entry.name.partition("/")[0])
    scale = f"{path}/{LOSS_SCALE}"
    return scale if entry.name.startswith(f"{scale}/") else path


def _counts(entry: Entry) -> bool:
    """Whether it is an integer given by keyword; to TensorFlow, what was not given is a weight."""
    given = entry.role in (Role.STATE, Role.WEIGHT) and "/" not in entry.name
    return given and entry.shape == () and "int" in entry.dtype
