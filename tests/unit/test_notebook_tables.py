"""What the tools return, as a notebook shows it: tables, escaped, in the notebook's own colors."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.stored.commits.record import CommitRecord
from tfckpt.stored.inspection.listing import ListedCheckpoint
from tfckpt.tools.comparison import ComparedCheckpoints
from tfckpt.tools.differences import Difference, DifferenceKind
from tfckpt.tools.inspection import Inspection
from tfckpt.tools.listing import CheckpointList

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


class _Tables(HTMLParser):
    """The rows of all tables, the tags, and what styles them."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.tags, self.open, self.attributes = [], set(), [], set()
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        self.attributes |= set(attrs)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


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
    found = tfckpt.list_checkpoints(run, keep=[{"latest": 1}])
    title, *rows = _Tables(found._repr_html_()).rows
    assert title == [*title[:5], "loss", "notes"]
    assert [(row[0], row[1], row[5]) for row in rows] == [
        ("ckpt-2", "2,000", "0.25"),
        ("ckpt-1", "1,000", "0.5"),
    ]
    assert "newest" in rows[0][6]
    assert rows[1][6] == "no rule keeps it: would be deleted"


def test_a_list_of_checkpoints_is_a_tuple_as_before(run):
    found = tfckpt.list_checkpoints(run)
    assert isinstance(found, tuple)
    assert found == (found[0], found[1])


def test_a_checkpoint_is_a_table_of_its_values(run):
    rows = _Tables(tfckpt.inspect(run)._repr_html_()).rows
    assert ["kernel", "weight", "float32 (4, 2)", "32 B"] in rows
    assert ["bias", "weight", "float32 (2)", "8 B"] in rows


def test_statistics_are_those_of_numpy(run):
    rows = _Tables(tfckpt.inspect(run, values=True)._repr_html_()).rows
    bias = np.array([0.0, 8.0])
    expected = [f"{number:.3g}" for number in (bias.min(), bias.max(), bias.mean(), bias.std())]
    assert ["model/out/bias", "float32 (2)", *expected, ""] in rows


def test_a_difference_shows_the_largest_change_first(run):
    older, newer = sorted(one.prefix for one in tfckpt.list_checkpoints(run))
    page = tfckpt.diff(older, newer, values=True)._repr_html_()
    title, first, *others = _Tables(page).rows
    assert title == ["value", "difference", "type", "differ", "largest", "relative"]
    assert first[:5] == ["model/out/bias", "value", "float32 (2)", "1", "8"]
    assert [row[0] for row in others] == ["save_counter"]


def test_equal_checkpoints_have_no_table(run):
    page = tfckpt.diff(run / "ckpt-1", run / "ckpt-1")._repr_html_()
    assert _Tables(page).rows == []
    assert "0 different" in page


def test_an_inventory_is_a_table_that_folds_what_is_alike():
    blocks = inventory(*(f"model/block_{i}/kernel" for i in range(30)))
    rows = _Tables(blocks._repr_html_()).rows
    assert rows[-1] == ["block_{0…29}/kernel", "weight", "float32 (2, 2) ×30", "480 B"]


LISTED = ListedCheckpoint("runs/<script>\x1b", 1, "damaged", None, 3, 0.0, "the <file> is short")
SHOWN = [
    inventory(HOSTILE),
    Inspection("zoo/<b>", "tensorflow", inventory(HOSTILE), missing_files=("<i>",)),
    Inspection("zoo", "tensorflow", inventory(HOSTILE), statistics={HOSTILE: None}),
    compared(HOSTILE),
    CheckpointList([LISTED]),
]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: type(shown).__name__)
def test_what_is_shown_is_harmless_and_suits_light_and_dark(shown):
    page = shown._repr_html_()
    tables = _Tables(page)
    assert tables.tags <= {"div", "p", "b", "code", "table", "tr", "th", "td"}
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page
    styles = {value for _, value in tables.attributes}
    assert {name for name, _ in tables.attributes} <= {"style"}
    assert not [style for style in styles if re.search("color|background|url|font", style)]


MANY = [f"model/{chr(200 + i % 700)}{i}/kernel" for i in range(2000)]


@pytest.mark.parametrize("shown", [inventory(*MANY), compared(*MANY)], ids=["inventory", "diff"])
def test_thousands_of_values_are_a_page(shown):
    page = shown._repr_html_()
    assert len(page) < 200_000
    assert "more" in page


def test_a_metric_that_one_checkpoint_has_is_a_column():
    head = CommitRecord(2, inventory(), "", "", metrics={"val_loss": 0.125})
    other = dataclasses.replace(LISTED, head=head, best_by="val_loss", problem="")
    title, first, second = _Tables(CheckpointList([other, LISTED])._repr_html_()).rows
    assert title[5:] == ["val_loss", "notes"]
    assert first[5:] == ["0.125", "the best by val_loss"]
    assert second[5:] == ["", "the <file> is short"]
