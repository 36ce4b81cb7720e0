"""What `rewrite` and `convert` take from a checkpoint: their arguments, as a policy and its plan.

The plan is a restore plan whose target is the new checkpoint (:mod:`tfckpt.planning.rewrite`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.core.inventory import Origin, Role
from tfckpt.core.selectors import Selector
from tfckpt.errors import ARGUMENTS, PolicyError, Problem
from tfckpt.planning.rewrite import derive
from tfckpt.policy import Policy, load_policy
from tfckpt.stored.formats.average import Average, open_average
from tfckpt.stored.io.files import files_of
from tfckpt.tools.find_checkpoint import find, path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning import Plan
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint

_FLOATS = ("float", "bfloat")
ANY_FLOAT = ""  # in place of a selector: all floating-point weights and slots


class SelectedValues(NamedTuple):
    """What is taken from a checkpoint, in the words of :func:`tfckpt.rewrite`."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    rename: Sequence[Mapping[str, str]] = ()
    drop_optimizer: bool = False
    cast: str | Mapping[str, str] | None = None
    average: Sequence[str | os.PathLike[str]] = ()
    policy: Policy | Mapping[str, Any] | None = None

    @property
    def rules(self) -> list[str]:
        """Those that a policy has as well."""
        return [
            name
            for name in ("include", "exclude", "rename", "drop_optimizer")
            if getattr(self, name)
        ]


def open_source(
    source: str | os.PathLike[str], average: Sequence[str | os.PathLike[str]]
) -> tuple[StoredCheckpoint, dict[str, str]]:
    """The source, or its average with other checkpoints; and why newer ones were rejected."""
    found = find(path_of(source))
    if not average:
        return found.checkpoint, found.rejected
    paths, rejected = [], dict[str, str]()
    for one in (found, *(find(path_of(other)) for other in average)):
        one.checkpoint.close()
        paths.append(one.checkpoint.prefix)
        rejected |= one.rejected
    return open_average(Average(tuple(paths)), roots=None, bases=(), files=files_of), rejected


def plan_selection(selection: SelectedValues, stored: StoredCheckpoint) -> Plan:
    """The plan of what is selected from a checkpoint."""
    casts = _casts(selection.cast)
    policy = policy_of(selection) or _policy(selection, stored.inventory)
    for key, unset in (("adapt", ()), ("ema", None)):
        if getattr(policy, key) != unset:
            message = f"{key}: needs a model, which rewrite and convert do not have"
            hint = f"restore into the model and save it, or use a policy without `{key}`"
            raise PolicyError(policy.file, [Problem(message, *policy.where(key), hint)])
    if casts:
        policy = policy.model_copy(update={"on_dtype_mismatch": "cast"})
    plan = derive(policy, stored.inventory, partial(_dtype, casts))
    for cast in casts:
        if not cast.used:
            raise misuse(f"`cast` {cast.text} matches no value")
    values = stored.values
    origin = Origin(stored.prefix, values.digest, policy.name, policy.digest, values.shares)
    return dataclasses.replace(plan, origins=(origin,))


def policy_of(selection: SelectedValues) -> Policy | None:
    """The policy that was given; None without one."""
    if selection.policy is None:
        return None
    if mixed := selection.rules:
        raise misuse(f"`policy` sets the rules; remove {quoted(mixed)}")
    return load_policy(selection.policy, called=ARGUMENTS)


def misuse(message: str) -> PolicyError:
    """The error for arguments that are not valid."""
    return PolicyError(ARGUMENTS, [Problem(message)])


def quoted(names: Sequence[str]) -> str:
    """Names of arguments, for a message."""
    return ", ".join(f"`{name}`" for name in names)


def _policy(selection: SelectedValues, stored: Inventory) -> Policy:
    rules: dict[str, Any] = {"rename": selection.rename, "exclude": selection.exclude}
    if selection.include:
        rules["include"] = selection.include
    if selection.drop_optimizer:
        rules["exclude_checkpoint"] = _optimizer_selectors(stored)
        rules["optimizer"] = "reset"
    try:
        return Policy(name="rewrite", **rules)
    except PolicyError as error:
        raise PolicyError(ARGUMENTS, error.problems) from None


def _optimizer_selectors(stored: Inventory) -> list[str]:
    """Selectors of all values below an optimizer."""
    return [
        f"{path}/**"
        for path in sorted(stored.optimizers)
        if any(name.startswith(f"{path}/") for name in stored.entries)
    ]


_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}


class _CastRule:
    """A dtype for what a selector selects, or for all floating-point weights and slots.

    >>> _CastRule("model/**", "bf16").text
    'model/**=bfloat16'
    """

    def __init__(self, selector: str, dtype: str) -> None:
        dtype = _SHORT.get(dtype, dtype)
        self.dtype = dtype
        self.text = f"{selector}={dtype}" if selector else dtype
        self.used = False
        if ITEM_BYTES.get(dtype) is None:
            raise misuse(f"`cast` {self.text}: {dtype!r} is not a dtype; use e.g. float16")
        try:
            self._selector = Selector(selector) if selector else None
        except ValueError as error:
            raise misuse(f"`cast` {self.text}: {error}") from None

    def applies(self, entry: Entry) -> bool:
        if self._selector is not None:
            applies = entry.shape is not None and self._selector.matches(entry.name)
        else:
            applies = entry.role in (Role.WEIGHT, Role.SLOT) and entry.dtype.startswith(_FLOATS)
        self.used = self.used or applies
        return applies


def _casts(cast: str | Mapping[str, str] | None) -> list[_CastRule]:
    if cast is None:
        return []
    dtypes = cast if isinstance(cast, Mapping) else {ANY_FLOAT: cast}
    return [_CastRule(selector, dtype) for selector, dtype in dtypes.items()]


def _dtype(casts: Sequence[_CastRule], entry: Entry) -> str:
    """The dtype of a value in the new checkpoint; the last that applies to it wins."""
    dtypes = [cast.dtype for cast in casts if cast.applies(entry)]
    return dtypes[-1] if dtypes else entry.dtype
