"""Canonical names of an optimizer's values: slots, counters, hyperparameters.

Keras 3, tf_keras, its legacy optimizers and ``tf.compat.v1.train`` name the same values
differently. The canonical name is Keras 3's if it has one, in the singular. An unknown name is
kept, so that the slots of a new optimizer have names of their own and match no other optimizer's.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tfckpt.core.inventory import Role, snake_case, unnumbered
from tfckpt.core.names import MODEL, OPTIMIZER, NodeKind
from tfckpt.core.text import without_repeat

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.core.names import Node

_T = TypeVar("_T")

# Component of a loss-scale optimizer's own values, below the path of the inner optimizer.
LOSS_SCALE = "loss_scale"

_SLOTS = {
    # Keras 3's words in variable names, all that a file has if a list has gaps
    "adam_velocities": "velocity",
    "gradient_accumulator": "accumulated_gradient",
    # tf_keras's legacy optimizers
    "m": "momentum",
    "v": "velocity",
    "u": "velocity",  # Adamax's norm, which the legacy Adamax calls v
    "vhat": "velocity_hat",
    "rms": "velocity",
    "mg": "average_gradient",
    "accum_grad": "accumulated_grad",
    "accum_var": "accumulated_delta_var",
    "accum_update": "accumulated_delta_var",
    "model_variables_moving_average": "moving_average",
    "average": "moving_average",
}
_OPTIMIZER_WORDS = {
    "iter": "iterations",
    "lr": "learning_rate",
    "current_loss_scale": "dynamic_scale",
    "good_steps": "step_counter",
    "momentum_cache": "u_product",  # Nadam's product of the momenta so far
}
_HYPERPARAMETER = re.compile(
    r"beta(_[12])?|(current_)?learning_rate(_power)?|(weight_)?decay|epsilon|momentum|rho"
    r"|l[12]_(shrinkage_)?regularization_strength"
)

# Classes that tf.compat.v1.train spells differently than Keras.
_V1_CLASSES = {"rms_prop": "rm_sprop", "ada_max": "adamax"}


class OptimizerClass(NamedTuple):
    """What is known of an optimizer's class.

    Attributes:
        more: slots that depend on the settings.
        like: the class whose slots have the same meaning.
        copies: slots that begin as copies of the weights.
        bare: whether it has no slots without those.
        automatic: whether its name may be automatic. Any other name of an optimizer was chosen by
            the user, e.g. ``generator_adam``, and does not identify its class.
    """

    more: tuple[str, ...] = ()
    like: str = ""
    copies: tuple[str, ...] = ()
    bare: bool = False
    automatic: bool = True


OF_TF1 = f"{OPTIMIZER}/tf1/"  # what an optimizer of TF1 left in a file, followed by its key
OF_SEVERAL = "multi_optimizer"  # no file of TensorFlow's has the optimizers in it
AVERAGE = "moving_average"  # of the weights, which any optimizer may have
# Slots that depend on the settings, and are right at zero beside others that are not.
ACCUMULATED = "accumulated_gradient"
CENTERED = "average_gradient"  # of RMSprop, which other slots do not tell from Adam
AT_ZERO = frozenset({"velocity_hat", CENTERED, ACCUMULATED})
# By the class in snake case.
OPTIMIZERS: Mapping[str, OptimizerClass] = MappingProxyType(
    {
        **dict.fromkeys(("adadelta", "adagrad", "adagrad_da"), OptimizerClass()),
        **dict.fromkeys(("adam", "adamax", "ftrl", "lamb", "lion", "momentum"), OptimizerClass()),
        **dict.fromkeys((OF_SEVERAL, "muon", "proximal_adagrad"), OptimizerClass()),
        # tf_keras writes the zeros that it keeps for vectors into none of Keras's files.
        "adafactor": OptimizerClass(more=("r", "c")),
        "adam_w": OptimizerClass(like="adam"),
        "adam_weight_decay": OptimizerClass(automatic=False),
        "lars": OptimizerClass(automatic=False),
        "momentum_w": OptimizerClass(automatic=False),
        # tf_keras writes the product of the momenta into none of Keras's files.
        "nadam": OptimizerClass(more=("u_product",)),
        "rm_sprop": OptimizerClass(more=("momentum",)),
        "schedule_free_adam_w": OptimizerClass(copies=("momentum",)),
        "sgd": OptimizerClass(more=("momentum",), bare=True),
    }
)


def begins_as_weights(slot: str, cls: str) -> bool:
    """Whether a slot begins as a copy of its variable, in an optimizer of the class.

    >>> begins_as_weights("moving_average", "sgd"), begins_as_weights("momentum", "sgd")
    (True, False)
    """
    return slot == AVERAGE or (cls in OPTIMIZERS and slot in OPTIMIZERS[cls].copies)


def is_another_class(one: str, other: str) -> bool:
    """Whether equal slots mean something else in optimizers of two classes, ``""`` if unknown.

    A class whose slots begin as copies of the weights is no unknown one.

    >>> is_another_class("adam", "adam_w"), is_another_class("", "schedule_free_adam_w")
    (False, True)
    """
    both = [OPTIMIZERS.get(name, OptimizerClass()) for name in (one, other)]
    if one and other:
        return (both[0].like or one) != (both[1].like or other)
    return any(known.copies for known in both)


def optimizer_class(name: str) -> str:
    """The class in an optimizer's automatic name, numbered or not; ``""`` for other names.

    >>> optimizer_class("adam_w_1"), optimizer_class("generator_adam")
    ('adam_w', '')
    """
    name = unnumbered(name)
    return name if name in OPTIMIZERS and OPTIMIZERS[name].automatic else ""


def v1_class(name: str) -> str:
    """The class of an optimizer of ``tf.compat.v1.train``, in snake case.

    >>> v1_class("RMSPropOptimizer"), v1_class("MomentumOptimizer")
    ('rm_sprop', 'momentum')
    """
    label = snake_case(unnumbered(name).removesuffix("Optimizer"))
    return _V1_CLASSES.get(label, label)


def slot_name(attribute: str) -> str:
    """The canonical slot name for an optimizer's attribute or its own slot name.

    >>> slot_name("_velocities"), slot_name("_momentums"), slot_name("vhat"), slot_name("u")
    ('velocity', 'momentum', 'velocity_hat', 'velocity')
    """
    name = attribute.lstrip("_")
    if name in _SLOTS:
        return _SLOTS[name]
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name.removesuffix("s") if len(name) > 2 else name


def slot_among(name: str, others: Collection[str]) -> str:
    """As :func:`slot_name`, for a slot that the optimizer has beside ``others``.

    In ``tf.compat.v1.train``, ``accum`` means different slots in Ftrl and Adadelta.

    >>> slot_among("accum", ["accum", "linear"]), slot_among("accum", ["accum", "accum_update"])
    ('accumulator', 'accumulated_grad')
    """
    if name == "accum":
        return "accumulated_grad" if "accum_update" in others else "accumulator"
    return slot_name(name)


def by_slot_path(variables: Iterable[tuple[str, _T]]) -> dict[str, _T | None]:
    """Variables by their prefix in Keras 3's slot names, None if two share it.

    >>> by_slot_path([("a/kernel", 1), ("b/kernel", 2), ("b_kernel", 3)])
    {'a_kernel': 1, 'b_kernel': None}
    """
    by_prefix: dict[str, _T | None] = {}
    for path, variable in variables:
        key = path.replace("/", "_")
        by_prefix[key] = None if key in by_prefix else variable
    return by_prefix


def split_slot(name: str, variables: Mapping[str, _T | None]) -> tuple[_T | None, str]:
    """The variable and the slot in a Keras 3 slot name, ``<path of the variable with _>_<slot>``.

    ``variables`` comes from :func:`by_slot_path`; the longest prefix that matches is used.

    >>> split_slot("encoder_dense_kernel_momentum", {"encoder_dense_kernel": 1, "encoder": 2})
    (1, 'momentum')
    """
    end = name.rfind("_")
    while end > 0:
        if name[:end] in variables:
            return variables[name[:end]], name[end + 1 :]
        end = name.rfind("_", 0, end)
    return None, ""


_BELOW_MODEL = f"{MODEL}/"


def slot_tail(of: str) -> str:
    """The part of a slot's name that comes from its variable.

    >>> slot_tail("model/a/kernel"), slot_tail("generator/a/kernel")
    ('/a/kernel', '/generator/a/kernel')
    """
    return "/" + of.removeprefix(_BELOW_MODEL)


def slot_head(entry: Entry) -> str:
    """The optimizer and slot that a slot's name begins with; ``""`` if they cannot be split off.

    If two variables would make the same name, the second one ends with ``~2``.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> name = "optimizer/momentum/a/kernel~2"
    >>> slot_head(Entry(name, Role.SLOT, "float32", (2,), slot="momentum", of="model/a/kernel"))
    'optimizer/momentum'
    """
    name, of = entry.name, entry.of
    tail = slot_tail(of)
    if not name.endswith(tail):
        name = without_repeat(name)
    head = name[: -len(tail)] if of and name.endswith(tail) else ""
    return head if head.endswith("/" + entry.slot) else ""


def optimizer_of(entry: Entry, inventory: Inventory) -> str:
    """The path of the optimizer, or of the loss scale, that a value is of."""
    path = ""
    for each in inventory.optimizers:
        if len(each) > len(path) and entry.name.startswith(f"{each}/"):
            path = each
    path = path or entry.name.partition("/")[0]
    scale = f"{path}/{LOSS_SCALE}"
    return scale if entry.name.startswith(f"{scale}/") else path


def named_slot(full_name: str, variables: Mapping[str, _T]) -> tuple[str, str, _T | None]:
    """The optimizer's class, the slot and the variable from a slot's name in tf_keras.

    ``Adam/m/dense/kernel`` if the slot was made in a training step, ``m/dense/kernel`` if the
    optimizer was built explicitly; ("", "", None) if neither form fits or both do.

    >>> named_slot("Adam/m/dense/kernel", {"dense/kernel": 1})
    ('adam', 'm', 1)
    """
    parts = full_name.split("/")
    cuts = [cut for cut in (1, 2) if "/".join(parts[cut:]) in variables]
    if len(cuts) != 1:
        return "", "", None
    (cut,) = cuts
    cls = snake_case(parts[0]) if cut == 2 else ""
    return cls, parts[cut - 1], variables["/".join(parts[cut:])]


def optimizer_value(attribute: str) -> tuple[str, Role]:
    """Name and role of an optimizer's value that belongs to no variable of the model.

    A value that is neither counter nor hyperparameter has role SLOT, so ``slots: reset`` resets it.

    >>> optimizer_value("iter"), optimizer_value("momentum_cache")
    (('iterations', <Role.ITERATIONS: 'iterations'>), ('u_product', <Role.SLOT: 'slot'>))
    """
    name = attribute.lstrip("_")
    name = _OPTIMIZER_WORDS.get(name, name)
    if name == "iterations":
        return name, Role.ITERATIONS
    return name, Role.HYPERPARAMETER if _HYPERPARAMETER.fullmatch(name) else Role.SLOT


def promote_optimizer(roots: dict[str, Node]) -> None:
    """Move a single compiled model's optimizer to ``optimizer``, unless it has another keyword.

    It stays below the model if another object has the keyword ``optimizer``.
    """
    if (model := roots.get(MODEL)) is None:
        return
    for edge, child in list(model.children):
        if edge != OPTIMIZER or child.kind is not NodeKind.OPTIMIZER:
            continue
        if any(node is child for node in roots.values()):
            model.children.remove((edge, child))
        elif OPTIMIZER not in roots:
            model.children.remove((edge, child))
            roots[OPTIMIZER] = child
