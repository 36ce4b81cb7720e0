"""Documents of `inspect`, `list` and `diff`, made by hand for the pages of `tfckpt report`."""

from __future__ import annotations

from typing import Any

from tfckpt.tools.movement import MovedValue, Movement
from zoo.plan_documents import HOSTILE

IMAGE = "model/<img src=x onerror=alert(1)>/kernel"  # markup that loads, if it is taken for that


def value(name: str, count: int, role: str = "weight") -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "dtype": "float32",
        "shape": [count],
        "nbytes": 4 * count,
        "key": name,
    }


def statistics(mean: float) -> dict[str, Any]:
    ends = {"least": mean - 1.0, "greatest": mean + 1.0, "mean": mean, "std": 0.5}
    return {"count": 9, "nonfinite": 0, "zeros": 0, "histogram": [1, 3, 5], **ends}


def checkpoint(values: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "prefix": "runs/a/ckpt-3",
        "kind": "tfckpt",
        "time": "2026-01-31T12:00:00+00:00",
        "versions": {"tfckpt": "0.1.0", "tensorflow": "2.21.0"},
        "finite": True,
        "step": 300,
        "epoch": 3,
        "metrics": {"val_loss": 0.25},
        "metadata": {},
        "lineage": [],
        "values": values,
        "missing_shards": [],
    }


LAYERS = {"embed": 4000, "body": 2000, "head": 100}
VALUES = [
    *(value(f"model/{layer}/kernel", count) for layer, count in LAYERS.items()),
    *(value(f"model/{layer}/bias", 10) for layer in LAYERS),
    *(value(f"optimizer/momentum/{layer}/kernel", n, "slot") for layer, n in LAYERS.items()),
    value("optimizer/iterations", 2, "iterations"),
    value(HOSTILE, 500),
    value(IMAGE, 500),
]
CHECKPOINT = {
    **checkpoint(VALUES),
    "statistics": {one["name"]: statistics(number) for number, one in enumerate(VALUES)},
}
LARGE = checkpoint(
    [value(f"model/block_{b}/{n}/kernel", 10 + b) for b in range(100) for n in ("up", "down")]
    + [value(f"optimizer/momentum/block_{b}", 5, "slot") for b in range(300)]
)


def saved(number: int, **more: Any) -> dict[str, Any]:
    return {
        "path": f"runs/a/ckpt-{number}",
        "number": number,
        "state": "committed",
        "time": f"2026-01-31T12:{number:02}:00+00:00",
        "step": 100 * number,
        "epoch": number,
        "metrics": {"loss": 1 / number, "val_loss": 2 / number, "lr": 9.9e-4 / number**3},
        "metadata": {},
        "best": False,
        "finite": True,
        "nbytes": (1 << 20) + (number << 17),
        "problem": None,
        "kept": None,
        "delete": None,
        **more,
    }


RUN = {
    "directory": "runs/a",
    "checkpoints": [
        *(saved(number) for number in range(12, 3, -1)),
        saved(3, best=True, best_by="val_loss", kept=["best 1"], delete=False, next=False),
        saved(2, kept=["latest 2"], delete=False, next=True),
        saved(1, state="damaged", problem=f"is torn: {HOSTILE}"),
    ],
}


def changed(name: str, moved: float, role: str = "weight") -> dict[str, Any]:
    side = value(name, 100, role)
    change = {"moved": moved, "norm": 1.0, "least": 0.0, "greatest": 1.0, "a": [3, 1], "b": [1, 3]}
    return {
        "kind": "value",
        "a": side,
        "b": side,
        "differing": 1,
        "largest": moved,
        "relative": moved,
        "change": change,
    }


DIFFERENCE = {
    "a": "runs/a/ckpt-1",
    "b": "runs/a/ckpt-2",
    "equal": 1,
    "differences": [
        changed("model/calm/kernel", 0.001),
        changed("model/wild/kernel", 0.5),
        changed("model/wild/bias", 0.01),
        changed(IMAGE, 0.1),
        changed("optimizer/momentum/wild/kernel", 5.0, "slot"),
    ],
}

MOVEMENT = Movement(
    tuple((f"runs/a/ckpt-{number}", 100 * number) for number in range(1, 11)),
    tuple(
        MovedValue(
            f"model/{layer}/kernel",
            400,
            (1.0,) * 10,
            (None, *(speed / number for number in range(1, 10))),
            (None, *(speed * number for number in range(1, 10))),
        )
        for layer, speed in {"calm": 0.01, "wild": 0.3, IMAGE: 0.02}.items()
    ),
    {},
)
