"""Steps for MISSING and UNEXPECTED values: severity, likely reason, and what to do."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import OF_TF1
from tfckpt.planning.checks.one_sided import ADAPTER, OF_OPTIMIZERS, TF1_STATE, OneSided
from tfckpt.planning.checks.step import (
    MISSING_HINT,
    UNEXPECTED_HINT,
    Severity,
    Status,
    Step,
    is_save_counter,
)
from tfckpt.planning.matching.seeds import Seeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.matching.layers import Layers
    from tfckpt.planning.matching.rules import Rules
    from tfckpt.policy import Policy

_NOT_SAVED = (
    "not in the checkpoint: only tfckpt saves vocabularies and bins. The model keeps its own, "
    "which must be those that it was trained with"
)
_OWN_WRITER = "its layer writes its values itself, and only the layer can read them"
_OWN_WRITER_HINT = "load the file with Keras, then save the model once with tfckpt"
NO_SUCH_NAME = "the model has nothing with this name"
_SEVERITY = {"error": Severity.ERROR, "warn": Severity.WARN, "ignore": Severity.NOTE}
_ANEW = "optimizer: reset starts the optimizer from scratch"
_MISSING_SLOT_HINT = f"{_ANEW}; to leave only these as they are, declare them in expect_missing"
_LEFT_SLOT_HINT = f"{_ANEW}; to leave out only these, declare them in expect_unexpected"
_SETTING_HINT = (
    "optimizer: {hyperparameters: config} keeps the value from your code, or its schedule"
)
ADAPTERS_HINT = (
    "In Keras 3, call `enable_lora(rank)` on the layers before restoring: without its low-rank "
    "adapters (LoRA) a layer computes what it did before they were trained"
)
_OF_KERAS = OF_OPTIMIZERS | {Role.WEIGHT}


def is_adapter(name: str) -> bool:
    """Whether it is a low-rank factor that Keras 3 adds to a kernel (``Layer.enable_lora``).

    >>> is_adapter("model/dense/lora_kernel_a"), is_adapter("model/dense/kernel")
    (True, False)
    """
    return ADAPTER.fullmatch(name) is not None


def is_program_state(entry: Entry) -> bool:
    """Whether it is a seed, or the state of a stateful recurrent layer, which few files have."""
    return entry.role is Role.SEED or (entry.role is Role.STATE and "/" in entry.name)


class Unmatched:
    """Makes the steps for values without a counterpart.

    ``rules``: of ``exclude_checkpoint``, ``expect_missing`` and ``expect_unexpected``.
    """

    def __init__(
        self,
        policy: Policy,
        stored: Inventory,
        live: Inventory,
        layers: Layers,
        rules: tuple[Rules, Rules, Rules],
    ) -> None:
        self._policy = policy
        self._stored = stored
        self._live = live
        self._layers = layers
        self._drop, self._expect_missing, self._expect_unexpected = rules
        self._one_sided = OneSided(policy, stored, live)

    def missing(self, live: Entry, moved: Mapping[str, str], *, rival: bool) -> Step:
        """The step of a live value without a stored one; ``moved``: stored name → its rule."""
        variable = live.of or live.name
        sources = self._layers.why_missing, self._layers.orders.ambiguity
        ambiguities = (
            source(name) for name in dict.fromkeys((variable, live.name)) for source in sources
        )
        ambiguity, hint = next((found for found in ambiguities if found[0]), ("", ""))
        expected = self._expect_missing.every(live.name) is not None
        if ambiguity and not expected and live.name not in self._live.own_writing:
            error = Severity.ERROR, ambiguity, hint
            return Step(Status.SUSPECT, live.name, "", live, None, *error)
        said = live.name in moved or live.name in self._stored.left_out
        known = expected or said or self.seeds.ambiguity(live)
        if not known and (left := self._one_sided.missing(live, rival=rival)):
            return Step(Status.MISSING, live.name, "", live, None, Severity.NOTE, left)
        reason, hint = self._why_missing(live, moved)
        unsaved = is_program_state(live) and not self._stored.complete
        left_out = live.name in self._stored.left_out
        on_missing = self._policy.on_missing
        if self._is_looked_up(live) and on_missing == "error":
            on_missing = "warn"
        severity, reason = self._severity(
            live,
            on_missing,
            reason,
            self._expect_missing,
            unsaved=unsaved or (left_out and live.role is not Role.WEIGHT),
        )
        hint = hint if severity is Severity.ERROR else ""
        return Step(Status.MISSING, live.name, "", live, None, severity, reason, hint)

    def _why_missing(self, live: Entry, moved: Mapping[str, str]) -> tuple[str, str]:
        if live.name in self._stored.entries and (rule := self._drop.first(live.name)):
            reason = f"dropped from the checkpoint by exclude_checkpoint: {rule}"
        elif rule := moved.get(live.name):
            reason = f"the checkpoint's value of this name goes elsewhere: {rule}"
        elif why := self._stored.left_out.get(live.name):
            reason = f"left out of the checkpoint: {why}"
        elif is_save_counter(live):
            reason = "not in the checkpoint: write() was used, or its writer does not count saves"
        elif self._is_looked_up(live):
            reason = _NOT_SAVED
        elif live.name in self._live.own_writing:
            return _OWN_WRITER, _OWN_WRITER_HINT
        elif live.role in OF_OPTIMIZERS and not self._one_sided.optimizers[0]:
            reason = "the model has an optimizer, but the checkpoint has no optimizer state"
            return reason, f"{self._weights_alone}; or {_ANEW}"
        elif live.role is Role.SLOT and self._stored.find(live.of) is not None:
            reason = "the checkpoint's optimizer has no such slot"
            if live.slot in self._one_sided.slots[0]:
                reason = "the checkpoint has no slot for this variable, which was not trained then"
            return reason, _MISSING_SLOT_HINT
        else:
            reason = self.seeds.ambiguity(live) or "not in the checkpoint"
        return reason, _SETTING_HINT if live.role is Role.HYPERPARAMETER else MISSING_HINT

    def _is_looked_up(self, live: Entry) -> bool:
        """Whether it is the vocabulary of a layer, or its table of counts."""
        vocabulary = f"{live.name.rpartition('/')[0]}/vocabulary"
        table = live.role is Role.OBJECT and vocabulary in self._live.entries
        return table or live.role is Role.VOCABULARY

    def unexpected(self, stored: Entry, reason: str, target: str = "", *, rival: bool) -> Step:
        """The step of an unused stored value; ``reason`` is ``""`` if its name explains it."""
        subject = Status.UNEXPECTED, "", stored.name, None, stored
        expected = self._expect_unexpected.every(stored.name) is not None
        known = expected or reason
        if not known and (left := self._one_sided.unexpected(stored, rival=rival)):
            return Step(*subject, Severity.NOTE, left, target=target)
        if stored.name.startswith(OF_TF1):
            reason = reason or TF1_STATE
        severity, why = self._severity(
            stored, self._policy.on_unexpected, reason or NO_SUCH_NAME, self._expect_unexpected
        )
        hint = ""
        if severity is Severity.ERROR:
            hint = UNEXPECTED_HINT
            if not reason and stored.role in OF_OPTIMIZERS and not self._one_sided.optimizers[1]:
                why = "the checkpoint has optimizer state, but the model has no optimizer"
                hint = f"compile the model, or {self._weights_alone}"
            elif not reason and is_adapter(stored.name):
                hint = ADAPTERS_HINT
            elif not reason and (top := _top(stored.name)) in self._absent_objects:
                why = f"no object was passed as {top!r}"
                selectors = ", ".join(f'"{each}/**"' for each in self._absent_objects)
                hint = (
                    f"pass it as {top}=…, or leave it in the checkpoint: "
                    f"exclude_checkpoint: [{selectors}]"
                )
            elif not reason and stored.role is Role.SLOT and self._live.find(stored.of) is not None:
                why = "the model's optimizer has no such slot"
                if stored.slot in self._one_sided.slots[1]:
                    why = "the model has no slot for this variable, which is not trained now"
                hint = _LEFT_SLOT_HINT
            elif not reason and stored.role is Role.HYPERPARAMETER:
                hint = _SETTING_HINT
        return Step(*subject, severity, why, hint, target)

    @cached_property
    def seeds(self) -> Seeds:
        """The seeds of unnamed layers on both sides."""
        return Seeds(self._policy, self._stored, self._live)

    @property
    def by_role(self) -> bool:
        """Whether the reason for an unused value of an absent variable depends only on its role."""
        return not self._absent_objects and not self._live.aliases

    @cached_property
    def _absent_objects(self) -> list[str]:
        """The first components of stored names that no live name begins with."""
        entries = self._stored.entries.values()
        stored = {e.name.partition("/")[0] for e in entries if e.role in _OF_KERAS}
        return sorted(stored - {_top(name) for name in self._live.entries} - {"optimizer"})

    @cached_property
    def _weights_alone(self) -> str:
        weights = (e.name for e in self._live.entries.values() if e.role is Role.WEIGHT)
        tops = sorted({_top(name) for name in weights})
        selectors = ", ".join(f'"{top}/**"' for top in tops)
        return f"restore only the weights: include: [{selectors}]"

    def _severity(
        self, entry: Entry, key: str, reason: str, expected: Rules, *, unsaved: bool = False
    ) -> tuple[Severity, str]:
        if (rule := expected.every(entry.name)) is not None:
            return Severity.NOTE, f"{reason}, as expected: {rule}"
        if entry.role is Role.METRIC or unsaved or self.seeds.ambiguity(entry):
            return Severity.NOTE, reason
        return _SEVERITY[key], reason


def _top(name: str) -> str:
    return name.partition("/")[0]
