"""Reports, results and plans as text: in a terminal, by `print`, in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.text import collapse, size
from tfckpt.errors import Problem
from tfckpt.manager.retention import Decision
from tfckpt.planning import Plan, RestoreReport, Severity, Status, Step, make_plan, render_text
from tfckpt.planning.suggested import Suggestion
from tfckpt.policy import Policy
from tfckpt.tools.comparison import ComparedCheckpoints, Difference, DifferenceKind, compare
from tfckpt.tools.inspection import Inspection
from tfckpt.tools.listing import CheckpointList, ListedCheckpoint


def inventory(*names, shape=(2, 2)):
    return Inventory(
        "runs/ckpt-1",
        {name: Entry(name, Role.WEIGHT, "float32", shape, 16) for name in names},
    )


def report(policy, stored, live):
    return render_text(make_plan(policy, stored, live))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"model/block_{i}/kernel" for i in range(12)], ["model/block_{0…11}/kernel"]),
        ([f"blocks/{i}/dense/kernel" for i in range(4)], ["blocks/{0…3}/dense/kernel"]),
        (
            [f"b_{i}/layer_{j}/w" for i in range(3) for j in range(2)],
            ["b_{0…2}/layer_{0…1}/w"],
        ),
        (["b/0", "b/1", "b/3"], ["b/{0…1}", "b/3"]),
        (["b/0", "b/10", "b/2", "b/1"], ["b/{0…2}", "b/10"]),
        (["b/0/x", "b/1/x", "b/1/y"], ["b/{0…1}/x", "b/1/y"]),
        (["conv2d/w", "conv3d/w"], ["conv{2…3}d/w"]),
        (["b/00", "b/01"], ["b/00", "b/01"]),
        (["same"], ["same"]),
        ([], []),
    ],
)
def test_contiguous_indices_are_written_once(names, expected):
    assert [block.text for block in collapse(names)] == expected
    assert sum(block.count for block in collapse(names)) == len(names)


def test_blocks_of_another_shape_or_status_stay_apart():
    names = [f"model/block_{i}/kernel" for i in range(6)]
    stored, live = inventory(*names[:5]), inventory(*names)
    entries = dict(live.entries)
    odd = Entry(names[2], Role.WEIGHT, "float32", (9, 9), 324)
    stored = Inventory("runs/ckpt-1", {**stored.entries, names[2]: odd})
    live = Inventory("live", {**entries, names[2]: odd})
    text = report(Policy(on_missing="warn"), stored, live)
    assert "model/block_{0…1}/kernel" in text
    assert "model/block_{3…4}/kernel" in text
    assert "model/block_2/kernel" in text
    assert "model/block_5/kernel" in text


def test_sums_stand_above_and_what_is_refused_last_with_what_to_do():
    text = report(Policy(), inventory("model/a", "model/b"), inventory("model/a", "model/c"))
    lines = text.splitlines()
    assert lines[0].startswith("Plan: refused, 2 errors among 3 values from runs/ckpt-1")
    assert ["LOADED", "1", "16", "B"] in [line.split() for line in lines]
    assert "model/a" not in text
    assert text.index("model/c") < text.index("model/b")
    assert "on_missing: warn" in " ".join(text.split())
    assert [line.rstrip() for line in lines[-4:-1]] == [
        "  UNEXPECTED  the model has nothing with this name",
        "    → drop it with exclude_checkpoint, declare it in expect_unexpected, or set",
        "      on_unexpected: warn",
    ]
    assert lines[-1].split()[0] == "model/b"


def test_a_refusal_of_thousands_of_values_is_a_screen():
    stored = inventory(*(f"model/{chr(200 + i)}/{k}" for i in range(700) for k in "ab"))
    live = inventory(*(f"model/{chr(2000 + i)}/{k}" for i in range(700) for k in "cd"))
    assert len(report(Policy(), stored, live).splitlines()) < 30


def test_a_long_list_of_what_is_restored_is_folded_after_five():
    names = [f"model/{chr(200 + i)}/kernel" for i in range(30)]
    lines = report(Policy(), inventory(*names), inventory(*names)).splitlines()
    assert sum(line.split()[0] in names for line in lines if line) == 5
    assert lines[-1].strip() == "… and 25 more like these (all: --json or plan.steps)"


def test_errors_for_many_reasons_are_counted_too():
    step = Status.SUSPECT, "", "", None, None
    entry = Entry("model/a", Role.WEIGHT, "float32", (), 4)
    steps = tuple(
        Step(*step[:1], f"m/{chr(200 + i)}", "", entry, None, Severity.ERROR, f"why {chr(200 + i)}")
        for i in range(100)
    )
    text = render_text(Plan("p", "runs/ckpt-1", steps))
    shown = sum(f"why {chr(200 + i)}" in text for i in range(100))
    assert f"… and {100 - shown} more for other reasons (all: --json or plan.steps)" in text


def test_the_report_keeps_to_80_columns_and_breaks_no_name():
    long = "model/" + "/".join(f"a_rather_long_component_{i}" for i in range(6))
    names = ["model/a", "model/" + "b" * 45, long]
    text = report(Policy(on_unexpected="warn"), inventory(*names, "model/old"), inventory(*names))
    for line in text.splitlines():
        assert len(line) <= 80 or line.strip() == long
    assert all(name in text for name in names)


def test_escapes_in_names_and_reasons_are_harmless():
    name = "model/\x1b]0;owned\x07\u202e\nREFUSED"
    rules = ({"checkpoint": "model/a", "model": "model/z"},)
    text = report(Policy(rename=rules), inventory("model/a", name), inventory("model/q"))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "\\x1b]0;owned\\x07" in text
    assert not any(line.startswith("REFUSED") for line in text.splitlines())


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes_are_in_the_unit_that_suits_them(nbytes, text):
    assert size(nbytes) == text


def two_by_two(*names, source="zoo/iris/ckpt-1"):
    entries = (Entry(name, Role.WEIGHT, "float32", (2, 2), 16) for name in names)
    return Inventory(source, {entry.name: entry for entry in entries})


def plan(*live, **policy):
    policy = {"name": "finetune", **policy}
    return make_plan(Policy(**policy), two_by_two("model/a", "model/b"), two_by_two(*live))


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
        (two_by_two("a", "b"), "<Inventory: 2 values of 'zoo/iris/ckpt-1'>"),
        (
            compare(two_by_two("a", "b"), two_by_two("b", "c"), {}, {}),
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
    made = make_plan(policy, two_by_two(name, source="<img src=x>"), two_by_two("model/<u>"))
    shown = seen(made._repr_html_())
    assert "\x1b" not in shown
    assert name.replace("\x1b", "\\x1b") in shown


HOSTILE = "model/<script>alert(1)</script>\x1b[31m"


def entry(name, shape=(2, 2)):
    return Entry(name, Role.WEIGHT, "float32", shape, 4 * int(np.prod(shape)))


def tabled(*names):
    return Inventory("zoo/iris", {name: entry(name) for name in names})


def compared(*names):
    differences = tuple(
        Difference(DifferenceKind.VALUE, entry(name), entry(name)) for name in names
    )
    return ComparedCheckpoints("<a>", "b", differences, 3)


def seen_page(shown):
    """What a notebook shows, which is what `print` does."""
    page = shown._repr_html_()
    assert re.fullmatch("<pre>[^<>]*</pre>", page)
    text = unescape(page.removeprefix("<pre>").removesuffix("</pre>"))
    assert text == str(shown)
    return text


def rows(shown):
    """The words of each line."""
    return [line.split() for line in seen_page(shown).splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two checkpoints of a model, the second with a weight that has grown."""
    import keras

    directory = tmp_path_factory.mktemp("run")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), str(directory), None)
    manager.save(step=1000, metrics={"loss": 0.5})
    model.layers[0].bias.assign([0.0, 8.0])
    manager.save(step=2000, metrics={"loss": 0.25})
    return directory


def test_a_list_of_checkpoints_is_a_table_with_what_rules_would_delete(run):
    title, *lines = rows(tfckpt.list_checkpoints(run, keep=[{"latest": 1}]))
    assert title[-2:] == ["loss", "notes"]
    assert [line[:2] for line in lines] == [["ckpt-2", "2,000"], ["ckpt-1", "1,000"]]
    assert "0.25" in lines[0]
    assert "newest," in lines[0]
    assert " ".join(lines[1]).endswith("0.5 no rule keeps it: would be deleted")


def test_a_checkpoint_is_a_table_of_its_values(run):
    lines = rows(tfckpt.inspect(run))
    assert ["kernel", "weight", "float32", "(4,", "2)", "32", "B"] in lines
    assert ["bias", "weight", "float32", "(2)", "8", "B"] in lines


def test_a_difference_shows_the_largest_change_first(run):
    older, newer = sorted(one.prefix for one in tfckpt.list_checkpoints(run))
    lines = rows(tfckpt.diff(older, newer, values=True))
    at = lines.index(["value", "difference", "type", "differ", "largest", "relative"])
    assert lines[at + 1][:6] == ["model/out/bias", "value", "float32", "(2)", "1", "8"]
    assert [line[0] for line in lines[at + 2 :]] == ["save_counter"]


def test_an_inventory_is_a_table_that_folds_what_is_alike():
    lines = rows(tabled(*(f"model/block_{i}/kernel" for i in range(30))))
    assert lines[-1] == ["block_{0…29}/kernel", "weight", "float32", "(2,", "2)", "×30", "480", "B"]


LISTED = ListedCheckpoint("runs/<script>\x1b", 1, "damaged", None, 3, 0.0, "the <file> is short")
SHOWN = [
    tabled(HOSTILE),
    Inspection("zoo/<b>", "tensorflow", tabled(HOSTILE), missing_files=("<i>",)),
    Inspection("zoo", "tensorflow", tabled(HOSTILE), statistics={HOSTILE: None}),
    compared(HOSTILE),
    CheckpointList([LISTED]),
]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: type(shown).__name__)
def test_what_is_shown_is_harmless(shown):
    text = seen_page(shown)
    assert "\x1b" not in text
    assert "<script>" in text


MANY = [f"model/{chr(200 + i % 700)}{i}/kernel" for i in range(2000)]


@pytest.mark.parametrize("shown", [tabled(*MANY), compared(*MANY)], ids=["inventory", "diff"])
def test_thousands_of_values_are_a_page(shown):
    page = shown._repr_html_()
    assert len(page) < 200_000
    assert "more" in page
