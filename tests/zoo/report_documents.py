"""Checkpoints as `list_checkpoints` finds them, made by hand for the page of `tfckpt report`."""

from __future__ import annotations

import dataclasses
from typing import Any

from tfckpt.core.inventory import Inventory
from tfckpt.stored.commits.discovery import CheckpointInfo
from tfckpt.stored.commits.record_file import CommitRecord

HOSTILE = "model/<script>alert(1)</script>\"' onload=x <!--\x1b[31m\u202e&amp;"
NOON = 1769860800.0  # 2026-01-31, 12:00 UTC
_OF_THE_RECORD = {"step", "epoch", "metrics", "metadata", "finite", "versions"}


def saved(number: int, **more: Any) -> CheckpointInfo:
    """A checkpoint of a run, with what a test says of it or of its record."""
    head = CommitRecord(
        number,
        Inventory("", {}),
        "",
        "",
        step=100 * number,
        epoch=number,
        metrics={"loss": 1 / number, "val_loss": 2 / number, "lr": 9.9e-4 / number**3},
        finite=True,
    )
    recorded = {key: more.pop(key) for key in _OF_THE_RECORD & more.keys()}
    return dataclasses.replace(
        CheckpointInfo(
            f"runs/a/ckpt-{number}",
            number,
            "committed",
            dataclasses.replace(head, **recorded),
            (1 << 20) + (number << 17),
            NOON + 60 * number,
        ),
        **more,
    )


RUN = [
    *(saved(number) for number in range(12, 3, -1)),
    saved(3, best_by="val_loss", kept=("best 1",), delete=False, next=False),
    saved(2, kept=("latest 2",), delete=False, next=True),
    saved(1, state="damaged", problem=f"is torn: {HOSTILE}"),
]
LARGE = [saved(number) for number in range(600, 0, -1)]
