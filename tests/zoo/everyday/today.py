"""What comes of a row today, where that is another thing than what should."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zoo.everyday.judge import PASTED, REFUSED, WRONG
from zoo.everyday.rows import KERAS3, LEGACY, ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping


class Today(NamedTuple):
    """The cell, why it is no better, and in which flavours; () for all."""

    cell: str
    why: str
    flavours: tuple[str, ...] = ()


ONE_SIDE = "what only one side has is asked for"
DROPPED = "seeds that only one side has are asked for"
IN_PARTS = "`slots: reset` is suggested, and keeps the steps of what it resets"
AVERAGED = "the new averages begin at zero, and the end of a `fit` makes them the weights"
POSITIONS = "neither the names nor the order of unnamed layers are taken for what they say"
BY_INDEX = "another shape is taken for another order of values, and nothing is suggested"
NO_RATE = "tf_keras keeps the rate in no variable of its files, and it is asked for"
RECORD = "a record under another file name is called damaged"
WRITTEN_OVER = (
    "the record of what was there before is believed, and the new files are called damaged"
)
SLOTS = "slots that the optimizer does not have are asked for"

TODAY: Mapping[str, Today] = {
    **dict.fromkeys(
        (
            "epoch added",
            "step not asked for",
            "model alone of a loop",
            "the same, by TensorFlow",
            "iterator not asked for",
            "iterator added",
            "optimizer added",
            "module and step",
            "GAN, not compiled",
            "a run, without optimizer",
            "weights into a run",
            "weights into compiled",
            "compiled into weights",
            "TF weights, compiled",
            "TF compiled, weights",
            "images, not compiled",
            "subclassed, compiled",
            ".weights.h5, not compiled",
            ".weights.h5 into compiled",
            ".keras, not compiled",
            ".keras into compiled",
            ".h5, not compiled",
            ".h5 into compiled",
            "TF format, not compiled",
            "ModelCheckpoint, .keras",
            "TF1 with slots",
            "loss scale gone",
        ),
        Today(PASTED, ONE_SIDE),
    ),
    "Dropout added": Today(PASTED, DROPPED, KERAS3),
    "Dropout gone": Today(PASTED, DROPPED, KERAS3),
    "second Dropout": Today(PASTED, DROPPED),
    "momentum gone": Today(PASTED, SLOTS, KERAS3),
    "use_ema gone": Today(PASTED, SLOTS),
    "frozen since": Today(PASTED, SLOTS),
    **dict.fromkeys(
        (
            "Adam, now SGD",
            "SGD, now Adam",
            "Adam, now AdamW",
            "amsgrad added",
            "accumulation added",
        ),
        Today(WRONG, IN_PARTS),
    ),
    "use_ema added": Today(WRONG, AVERAGED),
    "BatchNormalization added": Today(REFUSED, POSITIONS),
    "a layer appended": Today(REFUSED, POSITIONS),
    ".weights.h5, more classes": Today(REFUSED, BY_INDEX),
    ".keras, more classes": Today(REFUSED, BY_INDEX),
    **dict.fromkeys(
        (".weights.h5, compiled", ".keras", ".keras, functional", ".h5"),
        Today(PASTED, NO_RATE, LEGACY),
    ),
    "ModelCheckpoint, weights": Today(PASTED, NO_RATE, LEGACY),
    **dict.fromkeys(("copied", "copied, drop-in", "renamed"), Today(REFUSED, RECORD)),
    **dict.fromkeys(
        ("TensorFlow wrote over it", "over it, drop-in", "TF format over it", "a copy over it"),
        Today(REFUSED, WRITTEN_OVER),
    ),
}


def expected(name: str, flavour: str) -> str:
    """The cell that the row has today."""
    today = TODAY.get(name)
    if today is None or (today.flavours and flavour not in today.flavours):
        return ROWS[name].should
    return today.cell
