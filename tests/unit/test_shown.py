"""Public values where Python and notebooks show them: a line in ``repr``, a text in HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.errors import Problem
from tfckpt.manager.retention import Decision
from tfckpt.planning import Plan, RestoreReport, make_plan
from tfckpt.planning.suggested import Suggestion
from tfckpt.policy import Policy
from tfckpt.tools.comparison import compare


def inventory(*names, source="zoo/iris/ckpt-1"):
    entries = (Entry(name, Role.WEIGHT, "float32", (2, 2), 16) for name in names)
    return Inventory(source, {entry.name: entry for entry in entries})


MANY = [f"model/block_{i}/{chr(200 + i % 90)}/kernel" for i in range(1391)]


def plan(*live, **policy):
    policy = {"name": "finetune", **policy}
    return make_plan(Policy(**policy), inventory("model/a", "model/b"), inventory(*live))


FINE = plan("model/a", "model/b", exclude=("model/b",))
REFUSED = plan("model/a", "model/c")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (FINE, "<Plan: 1 of 2 values (16 B) from zoo/iris/ckpt-1 under policy 'finetune'>"),
        (
            REFUSED,
            "<Plan: refused, 2 errors among 3 values from zoo/iris/ckpt-1 under policy 'finetune'>",
        ),
        (
            RestoreReport(FINE, "zoo/iris/ckpt-1", 20, 1),
            "<RestoreReport: 1 of 2 values (16 B) from zoo/iris/ckpt-1 under policy 'finetune', "
            "step 20, epoch 1>",
        ),
        (
            RestoreReport(Plan("", "", ()), ""),
            "<RestoreReport: no checkpoint found; all values stay unchanged>",
        ),
        (inventory("a", "b"), "<Inventory: 2 values of 'zoo/iris/ckpt-1'>"),
        (
            compare(inventory("a", "b"), inventory("b", "c"), {}, {}),
            "<Diff: 2 differ, 0 are equal, 1 are not compared>",
        ),
        (
            Decision({"a": ("newest",)}, ("b", "c"), frozenset(), 0.0),
            "<Decision: 1 kept, 2 to delete>",
        ),
        (
            Policy(name="finetune", include=("model/**",), api="read"),
            "Policy(name='finetune', api='read', include=('model/**',))",
        ),
    ],
)
def test_repr_is_a_line(value, expected):
    assert repr(value) == expected


def test_repr_of_a_thousand_values_is_as_short():
    made = make_plan(Policy(), inventory(*MANY), inventory(*MANY))
    for value in (made, RestoreReport(made, "zoo/iris/ckpt-1"), inventory(*MANY)):
        assert len(repr(value)) < 120


def test_repr_of_a_status_is_that_of_its_report(tmp_path):
    import tensorflow as tf

    path = tfckpt.Checkpoint(v=tf.Variable(1.0)).save(tmp_path / "ckpt")
    status = tfckpt.Checkpoint(v=tf.Variable(2.0)).restore(path)
    assert repr(status) == f"<LoadStatus of {status.report!r}>"
    assert "\n" not in repr(status)


def seen(page):
    """What a browser shows of a page that is one block of text."""
    assert re.fullmatch("<pre>[^<>]*</pre>", page)
    return unescape(page.removeprefix("<pre>").removesuffix("</pre>"))


PROBLEM = Problem("exclude: 'x' matches nothing", 7, 14, "did you mean 'y'?")


@pytest.mark.parametrize(
    "value",
    [
        FINE,
        REFUSED,
        Plan(REFUSED.policy, REFUSED.source, REFUSED.steps, (PROBLEM,), "configs/p.yaml"),
        replace(REFUSED, suggest=lambda: Suggestion({}, gave_up="too <many>")),
        RestoreReport(FINE, "zoo/iris/ckpt-1", rejected=("ckpt-2: <torn>",)),
        RestoreReport(Plan("", "", ()), "", absent=("runs/<a> is empty",)),
    ],
)
def test_a_notebook_shows_what_print_does(value):
    assert seen(value._repr_html_()) == str(value)


def test_what_a_notebook_shows_is_harmless():
    name = "model/<script>alert(1)</script>\x1b[31m"
    policy = Policy(name="<i>", exclude=("model/<b>/**",))
    made = make_plan(policy, inventory(name, source="<img src=x>"), inventory("model/<u>"))
    shown = seen(made._repr_html_())
    assert "\x1b" not in shown
    assert name.replace("\x1b", "\\x1b") in shown


def test_a_notebook_shows_a_thousand_values_in_a_page():
    made = make_plan(Policy(), inventory(*MANY), inventory(*MANY))
    assert len(made._repr_html_()) < 20_000
