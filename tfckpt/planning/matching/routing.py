"""Finds the live value for each stored value.

Rename rules come first and see only the stored name. A value that no rule matches goes to the same
name or, under ``match: structure``, to the layer at the same position. Slots are found by
optimizer, slot and variable, because slot names can repeat: a renamed layer keeps its momentum, and
no slot is mistaken for another variable's. A value with two paths (tied weights, a shared layer) is
found by either path, on either side.

Two stored values that map to one live value are both refused; the order of rules does not decide
between them.

Canonical names drop a leading underscore: ``self._head`` is ``head``, so that a model may make an
attribute private. But if a class has both and loses one, the other would take its name. So if only
one side has the underscore, the attributes count as different, as in TensorFlow.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role, rebased
from tfckpt.core.optimizer_names import slot_head, slot_tail
from tfckpt.planning.matching.seeds import layer_of, seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.matching.layers import Layers
    from tfckpt.planning.matching.rules import Moved, Renames
    from tfckpt.policy import Policy

_ANOTHER = (
    "{} has a leading underscore in only one of the checkpoint and the model; if it is the same "
    "attribute, map it with `rename`"
)

_SLOT_OF = "in the model, {} is a slot of {}, not of {}"


class Route(NamedTuple):
    """Where one stored value goes.

    Attributes:
        stored: the value.
        target: canonical name of the live value, or the name it would have.
        live: the live value of that name, or None.
        rule: the rule that renamed it, in words; ``""`` if none did.
        explicit: whether a rename rule matched this value's own name.
        alias: whether ``target`` is only an alias of the live value.
        unnamed: why it maps to this value, if the file does not store its layer's name.
        conflicts: why the live value of that name is not the right one; ``""`` for no conflict.
        adapt: the index of the ``adapt`` rule that sends it there, -1 if none does.
        part: index of the part of a split value, or of the value among joined ones.
        follows: whether it is a slot that only follows its variable.

    """

    stored: Entry
    target: str
    live: Entry | None
    rule: str = ""
    explicit: bool = False
    alias: bool = False
    unnamed: str = ""
    conflicts: str = ""
    adapt: int = -1
    part: int = 0
    follows: bool = False


class _Aim(NamedTuple):
    """Where a stored value goes by its own name; None if its position does not exist."""

    target: str | None
    rule: str = ""
    explicit: bool = False
    unnamed: str = ""
    adapt: int = -1
    part: int = 0
    conflicts: str = ""


_NO_VARIABLE = _Aim(None)


class Router:
    """Routes of stored values, for one policy and two inventories."""

    def __init__(
        self,
        policy: Policy,
        renames: Renames,
        stored: Inventory,
        live: Inventory,
        layers: Layers,
    ) -> None:
        self._renames = renames
        self._stored = stored
        self._live = live
        self._layers = layers
        self._by_position = tuple(policy.match) == ("structure",)
        self._aimed: dict[str, tuple[_Aim, ...]] = {}
        private = stored.private != live.private
        self._attributes = other_attributes(stored, live) if private else {}
        # without rules and positions, a value goes to the live value of the same name
        named = not (layers.by_position or stored.by_position)
        self._by_name = named and not self._by_position and not self._attributes

    @cached_property
    def _stored_slots(self) -> dict[tuple[str, str], Entry]:
        return _by_variable(self._stored)

    @cached_property
    def _live_slots(self) -> dict[tuple[str, str], Entry]:
        return _by_variable(self._live)

    def straight(self, stored: Entry) -> Entry | None:
        """The live value of the same name, if it is certainly the right one, else None.

        A fast path for the plainest result of :meth:`routes`: one route, to the same name and, for
        a slot, of the same variable. After None, :meth:`routes` decides.
        """
        live = self._live.entries.get(stored.name) if self._by_name else None
        if live is None or live.of != stored.of:
            return None
        if self._renames:
            if stored.of and self._renames.apply(stored.name):
                return None
            variable = stored.of or stored.name
            return live if self._variables(variable) == (_Aim(variable),) else None
        return live

    @cached_property
    def _named(self) -> bool:
        """Whether a value's own name alone determines where it goes."""
        aliases = self._stored.aliases or self._live.aliases
        return self._by_name and not self._renames and not aliases

    def nowhere(self, stored: Entry) -> bool:
        """Whether the stored value certainly has no live counterpart, by its name.

        A fast path, like :meth:`straight`.
        """
        if not self._named or stored.name in self._live.entries:
            return False
        return not (stored.of and self._live_slots)

    def meant(self, variable: str) -> str:
        """The live name that a stored variable maps to, whether or not it exists."""
        return self._variables(variable)[0].target or variable

    def routes(self, stored: Entry) -> list[Route]:
        """One, unless a rule sends the value to several names."""
        if stored.of:
            return list(self._slot(stored))
        return [self._route(stored, aim) for aim in self._variables(stored.name)]

    def _route(self, stored: Entry, aim: _Aim) -> Route:
        if aim.target is None:
            return Route(stored, stored.name, None, aim.rule, conflicts=aim.conflicts)
        live = self._live.find(aim.target)
        name, alias = (live.name, live.name != aim.target) if live else (aim.target, False)
        return Route(
            stored,
            name,
            live,
            aim.rule,
            aim.explicit,
            alias,
            aim.unnamed,
            adapt=aim.adapt,
            part=aim.part,
        )

    @property
    def aliased(self) -> bool:
        """Whether :meth:`known_as` can find anything."""
        return not self._by_position and bool(self._stored.aliases)

    def known_as(self, live: Entry) -> Entry | None:
        """The stored value that has the name of this live one as an alias."""
        if not self.aliased or live.name in self._stored.entries:
            return None
        variable = self._stored.find(live.of) if live.of else None
        if variable is not None and (head := slot_head(live)):
            return self._stored_slots.get((head, variable.name))
        return self._stored.find(live.name)

    def _slot(self, stored: Entry) -> Iterator[Route]:
        """A slot follows its variable, in its own optimizer or in the one that a rule names."""
        head = slot_head(stored)
        tail = stored.name.removeprefix(head)
        moved = self._renames.apply(stored.name)
        for aimed in _parts(moved):
            target = aimed.target or ""
            # a rule that keeps the variable's part of the name is not about the variable
            keeps = bool(head) and target.endswith(tail)
            new_head = target.removesuffix(tail) if keeps else ""
            for variable in self._variables(stored.of) if keeps else (_NO_VARIABLE,):
                follows = variable.adapt >= 0 > aimed.adapt
                aim = aimed._replace(target=variable.target, unnamed=variable.unnamed)
                if follows:
                    aim = aim._replace(adapt=variable.adapt, part=variable.part)
                explicit = aimed.explicit
                yield self._slot_route(stored, new_head, target, aim, explicit, follows=follows)
        for variable in () if moved else self._variables(stored.of):
            if variable.target is None:
                yield Route(stored, stored.name, None, variable.rule, conflicts=variable.conflicts)
                continue
            moves = head and variable.target != stored.of
            target = head + slot_tail(variable.target) if moves else stored.name
            follows = variable.adapt >= 0
            yield self._slot_route(stored, head, target, variable, explicit=False, follows=follows)

    def _slot_route(
        self,
        stored: Entry,
        head: str,
        target: str,
        variable: _Aim,
        explicit: bool,
        *,
        follows: bool,
    ) -> Route:
        """A slot's route, by its target name, else by its slot and variable."""
        of = variable.target
        own = self._live.find(of) if of else None
        name = own.name if own else of
        conflicts, live = "", self._live.find(target)
        if live is None or (name and name != live.of and self._another(stored, live, name)):
            other, live = live, self._live_slots.get((head, name)) if name else None
            if live is None:
                conflicts = _SLOT_OF.format(target, other.of, name) if other else ""
        match = (target, None, False) if live is None else (live.name, live, live.name != target)
        name, live, alias = match
        details = variable.unnamed, conflicts, variable.adapt, variable.part
        return Route(stored, name, live, variable.rule, explicit, alias, *details, follows)

    def _another(self, stored: Entry, live: Entry, variable: str) -> bool:
        """Whether a live slot is another variable's; an optimizer alone has labels, not names."""
        live_variable, stored_variable = self._live.find(live.of), self._stored.find(stored.of)
        return (
            live_variable is not None
            and stored_variable is not None
            and live_variable.name != variable
        )

    def _variables(self, name: str) -> tuple[_Aim, ...]:
        """Where a variable goes; cached for its slots."""
        if name not in self._aimed:
            self._aimed[name] = self._aims(name)
        return self._aimed[name]

    def _aims(self, name: str) -> tuple[_Aim, ...]:
        if moved := self._renames.apply(name):
            return tuple(self._resolved(name, aim) for aim in _parts(moved))
        if not self._by_position:
            other = rebased(name, self._attributes)
            if other is not None and self._live.find(other) is None:
                above = (each for each in self._attributes if f"{name}/".startswith(f"{each}/"))
                return (_Aim(None, conflicts=_ANOTHER.format(max(above, key=len))),)
            live_name, unnamed = self._resolve(name, other or name)
            return (_Aim(live_name, unnamed=unnamed),)
        target = self._placed(name)
        rule = "" if target == name else "match: structure, by position"
        return (_Aim(target and self._layers.orders.resolve(name, target), rule),)

    def _placed(self, name: str) -> str | None:
        """The live name at the same position; a seed goes with its layer."""
        entry = self._stored.entries.get(name)  # None for a slot's variable that is not stored
        if entry is None or entry.role is not Role.SEED:
            return self._layers.at_same_position(name)
        layer = self._layers.at_same_position(layer_of(name))
        return name if layer is None else seed_of(layer)

    def _resolved(self, name: str, aim: _Aim) -> _Aim:
        target, unnamed = self._resolve(name, aim.target or "")
        return _Aim(target, aim.rule, aim.explicit, unnamed, aim.adapt, aim.part, aim.conflicts)

    def _resolve(self, name: str, target: str) -> tuple[str | None, str]:
        """The live name of a stored value, by its layers and then by its index in one."""
        resolved, unnamed = self._layers.target(name, target)
        return None if resolved is None else self._layers.orders.resolve(name, resolved), unnamed


def _parts(moved: Sequence[Moved]) -> Iterator[_Aim]:
    """Where rules send a value; each target of a split gets its own part."""
    for each in moved:
        for index, target in enumerate(each.targets):
            part = each.part or index if each.adapt >= 0 else 0
            yield _Aim(target, each.rule, True, "", each.adapt, part)


def _by_variable(inventory: Inventory) -> dict[tuple[str, str], Entry]:
    """Optimizer and slot, and the variable's canonical name → the slot's value."""
    slots: dict[tuple[str, str], Entry] = {}
    for name in sorted(inventory.entries):
        entry = inventory.entries[name]
        if entry.of and (head := slot_head(entry)):
            variable = inventory.find(entry.of)
            slots.setdefault((head, variable.name if variable else entry.of), entry)
    return slots


def other_attributes(stored: Inventory, live: Inventory) -> Mapping[str, str]:
    """Stored path → live path of the same attribute, if the paths differ.

    ``""`` if the model only has an attribute that differs by the underscore.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> head = Entry("model/head/kernel", Role.WEIGHT, "float32", (2,))
    >>> public = Inventory("", {head.name: head}, private={})
    >>> private = Inventory("", {head.name: head}, private={"model/head": "_head"})
    >>> other_attributes(private, public), other_attributes(public, private)
    ({'model/head': ''}, {'model/head': '', 'model/_head': 'model/head'})
    """
    if stored.private is None or live.private is None or stored.private == live.private:
        return {}
    paths = {"/".join(parts[:end]) for parts in _split(live) for end in range(len(parts) + 1)}
    live_paths = {}
    for path in stored.private.keys() - live.private.keys():
        if path in paths:
            literal = _literal(path, stored.private[path])
            live_paths[path] = literal if literal in paths else ""
    for path in live.private.keys() - stored.private.keys():
        live_paths[path] = ""
        live_paths[_literal(path, live.private[path])] = path
    return live_paths


def _literal(path: str, attribute: str) -> str:
    return f"{path.rpartition('/')[0]}/{attribute}"


def _split(inventory: Inventory) -> Iterator[list[str]]:
    return (name.split("/") for name in inventory.entries)
