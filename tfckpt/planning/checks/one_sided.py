"""What one side does not have at all: one reading. It is left, or starts as new; and said.

That is an optimizer or a loss scale, if the other side has none left that it could be; slots that
the model's optimizer does not keep; hyperparameters; and seeds, integer counters and positions in
data, if the other side has none left that it could be. Weights are asked for, except the low-rank
factors of a restored kernel; and so is everything if the policy itself says ``on_missing: error``
or ``on_unexpected: error``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from tfckpt.core.inventory import Role
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Shape
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
NO_SUCH_NAME = "the model has nothing with this name"
OF_OPTIMIZERS = frozenset({Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER})
_ADAPTER = re.compile(r"(.*/)lora_([a-z]+)_([ab])")
ADAPTERS_HINT = (
    "In Keras 3, call `enable_lora(rank)` on the layers before restoring: without its low-rank "
    "adapters (LoRA) a layer computes what it did before they were trained"
)


def kind(entry: Entry) -> Kind:
    """What two values have in common that may be one under two names."""
    return entry.role, entry.dtype, entry.shape


def is_adapter(name: str) -> bool:
    """Whether it is a low-rank factor that Keras 3 adds to a kernel (``Layer.enable_lora``).

    >>> is_adapter("model/dense/lora_kernel_a"), is_adapter("model/dense/kernel")
    (True, False)
    """
    return _ADAPTER.fullmatch(name) is not None


def asks(policy: Policy, key: str) -> bool:
    """Whether a policy itself says what to do about values that only one side has."""
    asserted = policy.assert_ is not None or policy.expect_partial
    return asserted or key in policy.model_fields_set


def with_new_factors(steps: list[Step], policy: Policy) -> list[Step]:
    """Let the low-rank factors of a restored kernel begin that can be nothing in the checkpoint.

    The second one begins at zero, as Keras makes them.
    """
    asked = not asks(policy, "on_missing")
    left = (s.name for s in steps if s.status is Status.MISSING) if asked else ()
    matches = [*filter(None, map(_ADAPTER.fullmatch, left))]
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
