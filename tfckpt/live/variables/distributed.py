"""Distributed variables as single values: partitioned, or with a copy for each replica.

A ``ShardedVariable`` of a parameter server strategy is one value, which TensorFlow stores whole; so
it is named, compared and stored whole here, whatever its number of parts, and so are its slots. A
mirrored variable has the same value in each copy. A variable that is summed over replicas on read
gets the whole sum in the first copy and zero in the others on a restore; TensorFlow divides it by
the number of replicas, so that an integer count of 5 over two replicas becomes 4.

Values are assigned to the local variables of this process, one by one, without collectives, which
other workers would have to join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.tensorflow import CONTAINER, Sharded

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUM = tf.VariableAggregation.SUM
_ON_READ = tf.VariableSynchronization.ON_READ


class Whole:
    """A ``ShardedVariable`` with the interface of other variables."""

    def __init__(self, sharded: Any) -> None:
        self.sharded = sharded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sharded, name)

    @property
    def distribute_strategy(self) -> Any:
        """The strategy of its parts."""
        return self.sharded.variables[0].distribute_strategy

    def read_value(self) -> tf.Tensor:
        """The current value."""
        return tf.concat([part.read_value() for part in self.sharded.variables], 0)


def whole(sharded: Any) -> Whole:
    """The wrapper of a ``ShardedVariable``, always the same one."""
    found: Whole | None = sharded.__dict__.get("_tfckpt_whole")
    if found is None:
        found = sharded.__dict__["_tfckpt_whole"] = Whole(sharded)
    return found


def owner(variable: Any) -> Any:
    """The ``ShardedVariable`` that a variable is a part of; otherwise the variable itself."""
    of = variable.__dict__.get(CONTAINER)
    return variable if of is None else of()


def parts(variable: Any) -> tuple[Any, ...]:
    """The local variables that hold its value; for a plain one, itself."""
    if isinstance(variable, Whole):
        return tuple(variable.variables)
    if isinstance(variable, tf.distribute.DistributedValues):
        return tuple(variable.values)
    return (variable,)


def in_parts(variable: Any) -> tuple[Any, ...]:
    """The variables that Keras lists for it: the parts of a partitioned one, or itself."""
    return tuple(variable.variables) if isinstance(variable, Sharded) else (variable,)


def pieces(variable: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The local variables that hold a value, each with the piece to assign to it.

    ``variable`` is from ``variables.raw``; ``value`` is the whole array or tensor.
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
        is_first = strategy.extended.should_checkpoint  # true in the chief
        for number, part in enumerate(held):
            rest = summed and not (is_first and number == 0)
            yield part, tf.zeros_like(value) if rest else value
