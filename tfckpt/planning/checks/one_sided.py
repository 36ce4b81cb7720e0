"""What one side does not have at all: one reading. It is left, or starts as new; and said.

That is an optimizer or a loss scale, if the other side has none left that it could be; slots that
the model's optimizer does not keep; hyperparameters; and seeds, integer counters and positions in
data, if the other side has none left that it could be. Weights are asked for, except the low-rank
factors of a restored kernel; and so is everything if the policy itself says ``on_missing: error``
or ``on_unexpected: error``.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import AVERAGE, LOSS_SCALE, OF_TF1, optimizer_of
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status, is_save_counter

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Inventory, Shape
    from tfckpt.planning.checks.step import Step
    from tfckpt.policy import Policy

    Kind: TypeAlias = tuple[Role, str, Shape | None]

NO_STATE = "only in the model, whose optimizer stays as it is"
NO_OPTIMIZER = "only in the checkpoint, since the model has no such optimizer"
TF1_STATE = "only in the checkpoint: state of an optimizer of TF1, which none of Keras's continues"
NO_SLOT = "only in the checkpoint, since the model's optimizer has no such slot"
NOT_TRAINED = "only in the checkpoint, since its variable is not trained now"
ONLY_LIVE = "only in the model, which keeps it"
ONLY_STORED = "only in the checkpoint, where it stays"
AT_WEIGHTS = "starting at the restored weights"
TRAINED_NOW = "starting as in a new optimizer: its variable was not trained when it was saved"
NEW_SLOT = "starting as in a new optimizer: the checkpoint's optimizer has no such slot"
NOT_BEGUN = "starting as in a new optimizer: the checkpoint's optimizer has no slots"
NEW_FACTORS = "only in the model: low-rank factors (LoRA), without effect until they are trained"
_LEFT = NO_STATE, NO_OPTIMIZER, TF1_STATE, NO_SLOT, NOT_TRAINED, ONLY_LIVE, ONLY_STORED
ONE_SIDED = (*_LEFT, AT_WEIGHTS, TRAINED_NOW, NEW_SLOT, NOT_BEGUN, NEW_FACTORS)
OF_OPTIMIZERS = frozenset({Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER})
ADAPTER = re.compile(r"(.*/)lora_([a-z]+)_([ab])")


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
        self._asks_missing = asks(policy, "on_missing")
        self._asks_unexpected = asks(policy, "on_unexpected")

    @cached_property
    def optimizers(self) -> tuple[set[str], set[str]]:
        """The paths of the optimizers and loss scales of both sides."""
        stored, live = map(_optimizers, self._sides)
        return stored, live

    @cached_property
    def slots(self) -> tuple[set[str], set[str]]:
        """The slots that the optimizers of both sides have."""
        stored, live = self._sides
        return {e.slot for e in stored.entries.values()}, {e.slot for e in live.entries.values()}

    def missing(self, live: Entry, *, rival: bool) -> str:
        """Why a live value is left as it is; ``""`` if it is asked for.

        ``rival``: whether a stored value that nothing uses is of its kind.
        """
        if self._asks_missing:
            return ""
        stored, other = self.optimizers
        if live.role in OF_OPTIMIZERS and optimizer_of(live, self._sides[1]) not in stored:
            return NO_STATE if stored <= other else ""
        return ONLY_LIVE if self._stands_alone(live, rival=rival) else ""

    def unexpected(self, stored: Entry, *, rival: bool) -> str:
        """Why a stored value is left where it is; ``""`` if it is asked for.

        ``rival``: whether a live value that nothing goes to is of its kind.
        """
        if self._asks_unexpected:
            return ""
        if stored.name.startswith(OF_TF1):
            return TF1_STATE
        other, live = self.optimizers
        if stored.role in OF_OPTIMIZERS and optimizer_of(stored, self._sides[0]) not in live:
            return NO_OPTIMIZER if live <= other else ""
        tf1_average = stored.slot == AVERAGE and not other  # is no other optimizer's slot
        if stored.role is Role.SLOT and (tf1_average or not rival):
            if stored.of and self._sides[1].find(stored.of) is None:
                return ""
            return NOT_TRAINED if stored.of and stored.slot in self.slots[1] else NO_SLOT
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
        other = entry.slot == AVERAGE or entry.name.startswith(OF_TF1)
        if entry.role in OF_OPTIMIZERS and not plain and not other:
            paths.add(optimizer_of(entry, inventory))
    return paths


def _counts(entry: Entry) -> bool:
    """Whether it is an integer given by keyword; to TensorFlow, what was not given is a weight."""
    given = entry.role in (Role.STATE, Role.WEIGHT) and "/" not in entry.name
    return given and entry.shape == () and "int" in entry.dtype


def with_new_factors(steps: list[Step], policy: Policy) -> list[Step]:
    """Let the low-rank factors of a restored kernel begin that can be nothing in the checkpoint.

    The second one begins at zero, as Keras makes them.
    """
    asked = not asks(policy, "on_missing")
    left = (s.name for s in steps if s.status is Status.MISSING) if asked else ()
    matches = [*filter(None, map(ADAPTER.fullmatch, left))]
    if not matches:
        return steps
    by_name = {step.name: step for step in steps if step.name}
    unused = {kind(step.entry) for step in steps if step.status is Status.UNEXPECTED}
    found = {}
    for match in matches:
        layer, of, which = match.groups()
        pair = [by_name.get(f"{layer}lora_{of}_{each}") for each in "ab"]
        missing = all(each and each.status is Status.MISSING for each in pair)
        step, kernel = by_name[match[0]], by_name.get(f"{layer}{of}")
        error = step.severity is Severity.ERROR and kind(step.entry) not in unused
        if error and missing and kernel is not None and kernel.status in ASSIGNED:
            status = Status.RESET if which == "b" else Status.MISSING
            new = step._replace(status=status, severity=Severity.NOTE)
            found[step.name] = new._replace(reason=NEW_FACTORS, hint="")
    return [found.get(step.name, step) for step in steps]
