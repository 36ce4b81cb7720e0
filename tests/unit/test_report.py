"""The report of a plan, as somebody reads it in a terminal or a CI log."""

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.text import collapse, printable, signature, size
from tfckpt.errors import Problem
from tfckpt.planning import Plan, Severity, Status, Step, make_plan, render_text
from tfckpt.policy import Policy


def inventory(*names, shape=(2, 2)):
    return Inventory(
        "runs/ckpt-1",
        {name: Entry(name, Role.WEIGHT, "float32", shape, 16) for name in names},
    )


def report(policy, stored, live):
    return render_text(make_plan(policy, stored, live))


# --- repeated blocks


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


def test_both_sides_of_a_renamed_block_are_collapsed_together():
    rules = ({"checkpoint": "model/block_*/w", "model": "model/blk*/w"},)
    stored = inventory(*(f"model/block_{i}/w" for i in range(5)))
    text = report(Policy(rename=rules), stored, inventory(*(f"model/blk{i}/w" for i in range(5))))
    assert "model/blk{0…4}/w ← model/block_{0…4}/w" in text


# --- what comes first, what last, and what to do


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


def test_warnings_stand_before_what_is_refused_and_rules_that_are_wrong_last():
    policy = Policy(name="p", on_unexpected="warn", exclude=("model/hed/**",))
    stored = inventory("model/a", "model/b")
    text = report(policy, stored, inventory("model/a", "model/head/kernel"))
    titles = [line for line in text.splitlines() if line in ("Warnings", "Refused", "Problems")]
    assert titles == ["Warnings", "Refused", "Problems"]
    assert text.splitlines()[-2:] == [
        "  policy 'p': exclude: 'model/hed/**' matches nothing",
        "    → did you mean 'model/head/**'?",
    ]


def test_a_plan_that_is_fine_shows_what_it_does():
    text = report(Policy(), inventory("model/a"), inventory("model/a"))
    assert text.splitlines() == [
        "Plan: 1 value (16 B) from runs/ckpt-1 under policy 'policy'",
        "",
        "  LOADED             1          16 B",
        "",
        "Fine",
        "  LOADED  1 value",
        "    model/a                                     float32 (2, 2)",
    ]


def test_a_hint_stands_once_above_the_names_that_it_is_about():
    shapes = {f"model/{chr(97 + i)}/kernel": (2, 3 + 2 * i) for i in range(3)}
    stored = {n: Entry(n, Role.WEIGHT, "float32", s, 24) for n, s in shapes.items()}
    live = {n: Entry(n, Role.WEIGHT, "float32", (2, 2), 16) for n in shapes}
    text = report(Policy(), Inventory("runs/ckpt-1", stored), Inventory("live", live))
    assert text.count("MISMATCH  ") == 1 + len(shapes)
    assert text.count("exclude it, or set on_shape_mismatch: skip") == 1
    assert text.index("`adapt` rule may make it fit") < text.index("model/a/kernel")


def test_a_refusal_of_thousands_of_values_is_a_screen():
    stored = inventory(*(f"model/{chr(200 + i)}/{k}" for i in range(700) for k in "ab"))
    live = inventory(*(f"model/{chr(2000 + i)}/{k}" for i in range(700) for k in "cd"))
    assert len(report(Policy(), stored, live).splitlines()) < 30


def test_a_long_list_of_what_is_restored_is_folded_after_five():
    names = [f"model/{chr(200 + i)}/kernel" for i in range(30)]
    lines = report(Policy(), inventory(*names), inventory(*names)).splitlines()
    assert sum(line.split()[0] in names for line in lines if line) == 5
    assert lines[-1].strip() == "… and 25 more like these (all: --json or plan.steps)"


def test_so_is_what_differs_from_a_lock_and_what_to_do_is_not():
    drift = [Problem(f"lock f.json: model/{n}: other checksum") for n in range(12)]
    drift[-1] = drift[-1]._replace(hint="write a new lock")
    text = render_text(Plan("p", "runs/ckpt-1", (), drift=tuple(drift)))
    assert text.count("other checksum") == 5
    assert "… and 7 more" in text
    assert text.splitlines()[-1].strip() == "→ write a new lock"


def test_names_are_listed_by_their_numbers():
    names = ["model/vars/2", "model/vars/10", "model/vars/4"]
    text = report(Policy(), inventory(*names), inventory(*names))
    found = [line.split()[0] for line in text.splitlines() if "vars" in line]
    assert found == ["model/vars/2", "model/vars/4", "model/vars/10"]


def test_problems_show_file_line_and_hint():
    problem = Problem("exclude: 'x' matches nothing", 7, 14, "did you mean 'y'?")
    text = render_text(Plan("p", "runs/ckpt-1", (), (problem,), "configs/p.yaml"))
    assert "configs/p.yaml:7:14: exclude: 'x' matches nothing" in text
    assert "did you mean 'y'?" in text


def test_both_shapes_of_a_mismatch_are_shown():
    text = report(Policy(), inventory("model/a", shape=(3, 3)), inventory("model/a", shape=(3, 4)))
    assert "shape (3, 3) in the checkpoint" in text


def test_every_error_has_a_line_or_is_counted():
    names = [f"model/{chr(97 + i % 26)}{chr(97 + i // 26)}/kernel" for i in range(300)]
    text = report(Policy(), inventory("model/x"), inventory("model/x", *names))
    shown = sum(name in text for name in names)
    assert 0 < shown < 300
    assert f"… and {300 - shown:,} more like these (all: --json or plan.steps)" in text


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


# --- the page


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


def test_values_are_described_by_type_and_shape():
    assert signature(Entry("a", Role.WEIGHT, "int8", (1, 2))) == "int8 (1, 2)"
    assert signature(Entry("a", Role.WEIGHT, "int8", ())) == "int8 ()"
    assert signature(Entry("a", Role.OBJECT, "", None)) == "object"


def test_plain_text_is_left_alone():
    assert printable("model/größe/层") == "model/größe/层"
