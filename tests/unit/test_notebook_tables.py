"""What the tools return, as `print` and a notebook show it: one text, escaped."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import numpy as np
import pytest

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.stored.commits.record_file import CommitRecord
from tfckpt.tools.comparison import ComparedCheckpoints, Difference, DifferenceKind
from tfckpt.tools.inspection import Inspection
from tfckpt.tools.listing import CheckpointList, ListedCheckpoint

HOSTILE = "model/<script>alert(1)</script>\x1b[31m"


def entry(name, shape=(2, 2)):
    return Entry(name, Role.WEIGHT, "float32", shape, 4 * int(np.prod(shape)))


def inventory(*names):
    return Inventory("zoo/iris", {name: entry(name) for name in names})


def compared(*names):
    differences = tuple(
        Difference(DifferenceKind.VALUE, entry(name), entry(name)) for name in names
    )
    return ComparedCheckpoints("<a>", "b", differences, 3)


def seen(shown):
    """What a notebook shows, which is what `print` does."""
    page = shown._repr_html_()
    assert re.fullmatch("<pre>[^<>]*</pre>", page)
    text = unescape(page.removeprefix("<pre>").removesuffix("</pre>"))
    assert text == str(shown)
    return text


def rows(shown):
    """The words of each line."""
    return [line.split() for line in seen(shown).splitlines()]


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


def test_a_list_of_checkpoints_is_a_tuple_as_before(run):
    found = tfckpt.list_checkpoints(run)
    assert isinstance(found, tuple)
    assert found == (found[0], found[1])


def test_a_checkpoint_is_a_table_of_its_values(run):
    lines = rows(tfckpt.inspect(run))
    assert ["kernel", "weight", "float32", "(4,", "2)", "32", "B"] in lines
    assert ["bias", "weight", "float32", "(2)", "8", "B"] in lines


def test_statistics_are_those_of_numpy(run):
    bias = np.array([0.0, 8.0])
    expected = [f"{number:.3g}" for number in (bias.min(), bias.max(), bias.mean(), bias.std())]
    lines = rows(tfckpt.inspect(run, values=True))
    assert ["model/out/bias", "float32", "(2)", *expected] in lines


def test_a_difference_shows_the_largest_change_first(run):
    older, newer = sorted(one.prefix for one in tfckpt.list_checkpoints(run))
    lines = rows(tfckpt.diff(older, newer, values=True))
    at = lines.index(["value", "difference", "type", "differ", "largest", "relative"])
    assert lines[at + 1][:6] == ["model/out/bias", "value", "float32", "(2)", "1", "8"]
    assert [line[0] for line in lines[at + 2 :]] == ["save_counter"]


def test_equal_checkpoints_have_no_table(run):
    text = seen(tfckpt.diff(run / "ckpt-1", run / "ckpt-1"))
    assert text.startswith("0 different")
    assert len(text.splitlines()) == 3


def test_an_inventory_is_a_table_that_folds_what_is_alike():
    lines = rows(inventory(*(f"model/block_{i}/kernel" for i in range(30))))
    assert lines[-1] == ["block_{0…29}/kernel", "weight", "float32", "(2,", "2)", "×30", "480", "B"]


LISTED = ListedCheckpoint("runs/<script>\x1b", 1, "damaged", None, 3, 0.0, "the <file> is short")
SHOWN = [
    inventory(HOSTILE),
    Inspection("zoo/<b>", "tensorflow", inventory(HOSTILE), missing_files=("<i>",)),
    Inspection("zoo", "tensorflow", inventory(HOSTILE), statistics={HOSTILE: None}),
    compared(HOSTILE),
    CheckpointList([LISTED]),
]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: type(shown).__name__)
def test_what_is_shown_is_harmless(shown):
    text = seen(shown)
    assert "\x1b" not in text
    assert "<script>" in text


MANY = [f"model/{chr(200 + i % 700)}{i}/kernel" for i in range(2000)]


@pytest.mark.parametrize("shown", [inventory(*MANY), compared(*MANY)], ids=["inventory", "diff"])
def test_thousands_of_values_are_a_page(shown):
    page = shown._repr_html_()
    assert len(page) < 200_000
    assert "more" in page


def test_a_metric_that_one_checkpoint_has_is_a_column():
    head = CommitRecord(2, inventory(), "", "", metrics={"val_loss": 0.125})
    other = dataclasses.replace(LISTED, head=head, best_by="val_loss", problem="")
    title, first, second = seen(CheckpointList([other, LISTED])).splitlines()
    assert title.split()[-2:] == ["val_loss", "notes"]
    assert first.endswith("0.125  the best by val_loss")
    assert second.endswith("the <file> is short")
    assert "0.125" not in second
