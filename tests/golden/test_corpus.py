"""Names of the values of real checkpoints, by digests: nothing of them stands in the project."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from zoo.corpus import CORPUS, ITEMS

import tfckpt
from golden.files import check_digests, check_folder
from golden.lines import described, ordered

pytestmark = pytest.mark.usefixtures("corpus")


@pytest.mark.parametrize("name", ITEMS)
def test_every_value_has_the_name_that_it_had(name: str) -> None:
    check_digests(f"corpus/{name}", _lines(name))


def test_no_file_is_left_of_what_is_gone() -> None:
    check_folder("corpus", ITEMS)


def _lines(name: str) -> Iterator[str]:
    item = ITEMS[name]
    file = item["prefix"] if "prefix" in item else next(iter(item["files"]))
    try:
        found = tfckpt.inspect(f"{CORPUS / name}/{file}")
    except tfckpt.CheckpointError as error:
        yield type(error).__name__
        return
    yield found.kind
    entries = found.inventory.entries
    yield from (f"{n} {described(entries[n])} <- {entries[n].key}" for n in ordered(entries))
    yield from (f"{path} is {kind}" for path, kind in sorted(found.inventory.optimizers.items()))
    yield from (f"no {os.path.split(path)[1]}" for path in sorted(found.missing_files))
