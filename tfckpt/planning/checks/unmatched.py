"""Steps for MISSING and UNEXPECTED values: severity, likely reason, and what to do."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.planning.checks.one_sided import (
    ADAPTERS_HINT,
    NO_SUCH_NAME,
    OF_OPTIMIZERS,
    ONLY_LIVE,
    ONLY_STORED,
    asks,
    is_adapter,
)
from tfckpt.planning.checks.optimizers import SETTING_HINT
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
    from tfckpt.planning.checks.optimizers import Optimizers
    from tfckpt.planning.matching.layers import Layers
    from tfckpt.planning.matching.rules import Rules
    from tfckpt.policy import Policy

_NOT_SAVED = (
    "not in the checkpoint: only tfckpt saves vocabularies and bins. The model keeps its own, "
    "which must be those that it was trained with"
)
_OWN_WRITER = "its layer writes its values itself, and only the layer can read them"
_OWN_WRITER_HINT = "load the file with Keras, then save the model once with tfckpt"
_SEVERITY = {"error": Severity.ERROR, "warn": Severity.WARN, "ignore": Severity.NOTE}
_OF_KERAS = OF_OPTIMIZERS | {Role.WEIGHT}


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
        *,
        optimizers: Optimizers,
    ) -> None:
        self._policy = policy
        self._stored = stored
        self._live = live
        self._layers = layers
        self._drop, self._expect_missing, self._expect_unexpected = rules
        self._optimizers = optimizers
        self._asks = asks(policy, "on_missing"), asks(policy, "on_unexpected")

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
        if not known and (left := self._only_live(live, rival=rival)):
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
        elif live.role in OF_OPTIMIZERS:
            return self._optimizers.why_missing(live)
        else:
            reason = self.seeds.ambiguity(live) or "not in the checkpoint"
        return reason, SETTING_HINT if live.role is Role.HYPERPARAMETER else MISSING_HINT

    def _only_live(self, live: Entry, *, rival: bool) -> str:
        """Why a live value is left as it is; ``""`` if it is asked for.

        ``rival``: whether a stored value that nothing uses is of its kind.
        """
        if self._asks[0]:
            return ""
        if live.role in OF_OPTIMIZERS:
            return self._optimizers.only_live(live)
        return ONLY_LIVE if self._stands_alone(live, rival=rival) else ""

    def _only_stored(self, stored: Entry, *, rival: bool) -> str:
        """Why a stored value is left where it is; ``""`` if it is asked for.

        ``rival``: whether a live value that nothing goes to is of its kind.
        """
        if self._asks[1]:
            return ""
        if stored.role in OF_OPTIMIZERS:
            return self._optimizers.only_stored(stored, rival=rival)
        return ONLY_STORED if self._stands_alone(stored, rival=rival) else ""

    def _stands_alone(self, entry: Entry, *, rival: bool) -> bool:
        if is_save_counter(entry):
            return "api" not in self._policy.model_fields_set
        return (entry.role in (Role.SEED, Role.ITERATOR) or _counts(entry)) and not rival

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
        if not known and (left := self._only_stored(stored, rival=rival)):
            return Step(*subject, Severity.NOTE, left, target=target)
        severity, why = self._severity(
            stored, self._policy.on_unexpected, reason or NO_SUCH_NAME, self._expect_unexpected
        )
        hint = UNEXPECTED_HINT if severity is Severity.ERROR else ""
        if hint and not reason:
            why, hint = self._why_unexpected(stored)
        return Step(*subject, severity, why, hint, target)

    def _why_unexpected(self, stored: Entry) -> tuple[str, str]:
        top, absent = _top(stored.name), self._absent_objects
        if is_adapter(stored.name):
            return NO_SUCH_NAME, ADAPTERS_HINT
        if top in absent and (stored.role not in OF_OPTIMIZERS or self._optimizers.paths[1]):
            selectors = ", ".join(f'"{each}/**"' for each in absent)
            drop = f"exclude_checkpoint: [{selectors}]"
            hint = f"pass it as {top}=…, or leave it in the checkpoint: {drop}"
            return f"no object was passed as {top!r}", hint
        if stored.role in OF_OPTIMIZERS:
            return self._optimizers.why_unexpected(stored)
        return NO_SUCH_NAME, UNEXPECTED_HINT

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

    def _severity(
        self, entry: Entry, key: str, reason: str, expected: Rules, *, unsaved: bool = False
    ) -> tuple[Severity, str]:
        if (rule := expected.every(entry.name)) is not None:
            return Severity.NOTE, f"{reason}, as expected: {rule}"
        if entry.role is Role.METRIC or unsaved or self.seeds.ambiguity(entry):
            return Severity.NOTE, reason
        return _SEVERITY[key], reason


def _counts(entry: Entry) -> bool:
    """Whether it is an integer given by keyword; to TensorFlow, what was not given is a weight."""
    given = entry.role in (Role.STATE, Role.WEIGHT) and "/" not in entry.name
    return given and entry.shape == () and "int" in entry.dtype


def _top(name: str) -> str:
    return name.partition("/")[0]
