"""A variable that several variables hold, as one: in parts, or in a copy for each replica.

A ``ShardedVariable`` of a parameter server strategy is one value, which TensorFlow stores whole; it
is named, compared and stored whole here, too, whatever number of parts it has, and so are its
slots. A mirrored variable has the same value in each copy. What is summed over replicas when it is
read has the whole sum in the first copy after a restore, and nothing in the others: TensorFlow
divides it by their number, by which a count of 5 over two replicas becomes 4.

Assigned is always to the variables that this process holds, one by one: no collective, that another
worker would have to join, has a part in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator

Sharded: Any = tf.__internal__.distribute.ShardedVariable
CONTAINER = "_sharded_container"  # of a part, what it is a part of
_SUM = tf.VariableAggregation.SUM
_ON_READ = tf.VariableSynchronization.ON_READ


class Whole:
    """A ``ShardedVariable`` with what any other variable has."""

    def __init__(self, sharded: Any) -> None:
        self.sharded = sharded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sharded, name)

    @property
    def distribute_strategy(self) -> Any:
        """Of its parts."""
        return self.sharded.variables[0].distribute_strategy

    def read_value(self) -> tf.Tensor:
        """The value of now."""
        return tf.concat([part.read_value() for part in self.sharded.variables], 0)


def whole(sharded: Any) -> Whole:
    """The same for the same variable, as long as that lives."""
    found: Whole | None = sharded.__dict__.get("_tfckpt_whole")
    if found is None:
        found = sharded.__dict__["_tfckpt_whole"] = Whole(sharded)
    return found


def owner(variable: Any) -> Any:
    """The ``ShardedVariable`` that a variable is a part of; of any other, itself."""
    of = variable.__dict__.get(CONTAINER)
    return variable if of is None else of()


def parts(variable: Any) -> tuple[Any, ...]:
    """The variables that hold its value in this process; of a plain one, itself."""
    if isinstance(variable, Whole):
        return tuple(variable.variables)
    if isinstance(variable, tf.distribute.DistributedValues):
        return tuple(variable.values)
    return (variable,)


def in_parts(variable: Any) -> tuple[Any, ...]:
    """As Keras lists it: one that is partitioned by its parts, any other as itself."""
    return tuple(variable.variables) if isinstance(variable, Sharded) else (variable,)


def pieces(variable: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The variables that hold its value in this process, each with what is to be assigned to it.

    Args:
        variable: as ``variables.raw`` gives it.
        value: the whole of it, an array or a tensor.
    """
    held = parts(variable)
    if isinstance(variable, Whole):
        first = 0
        for part in held:
            rows = int(part.shape[0])
            yield part, value[first : first + rows]
            first += rows
    elif held[0] is variable:
        yield variable, value
    else:
        summed = variable.synchronization == _ON_READ and variable.aggregation == _SUM
        strategy = variable.distribute_strategy
        is_first = strategy.extended.should_checkpoint  # which is so in the chief
        for number, part in enumerate(held):
            rest = summed and not (is_first and number == 0)
            yield part, tf.zeros_like(value) if rest else value
