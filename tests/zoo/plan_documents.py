"""Documents of `plan`, made by hand."""

from __future__ import annotations

from typing import Any

HOSTILE = "model/<script>alert(1)</script>\"' onload=x <!--\x1b[31m\u202e&amp;"


def step(status: str, severity: str, name: str, **more: Any) -> dict[str, Any]:
    value = {"dtype": "float32", "shape": [2, 3], "nbytes": 24}
    return {
        "status": status,
        "severity": severity,
        "name": name,
        "source": name,
        "live": value,
        "stored": value,
        "reason": "",
        "hint": "",
        **more,
    }


PLAN: dict[str, Any] = {
    "policy": "finetune",
    "file": "",
    "source": "zoo/ckpt-1",
    "ok": False,
    "nbytes": 24,
    "counts": {"LOADED": 1, "MISSING": 1},
    "problems": [{"message": "exclude: 'x' matches nothing", "line": 7, "hint": "try y"}],
    "steps": [
        step("LOADED", "ok", "model/a"),
        step("MISSING", "error", HOSTILE, reason="<b>gone</b>", hint="look", stored=None),
    ],
}
