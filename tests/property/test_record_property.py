"""A record's values: written as `json` writes them, and read as one after the other is read."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tfckpt.core.inventory import Entry, Role
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.commits import record, record_entries

texts = st.text(max_size=5) | st.sampled_from(("model/a", "float32", 'é/"\\\n\u2028'))
values = st.builds(
    Entry,
    texts,
    st.sampled_from(Role),
    texts,
    st.none() | st.lists(st.integers(0, 1 << 62), max_size=3).map(tuple),
    st.integers(0, 1 << 62),
    texts,
    texts,
    texts,
    st.none() | st.integers(0, 2**32 - 1),
)


@given(st.lists(values, max_size=4))
def test_each_value_is_written_as_json_without_what_is_usual(found: list[Entry]) -> None:
    usual = {"nbytes": 0, "key": "", "slot": "", "of": "", "crc32c": None}
    plain = [
        {k: v for k, v in entry._asdict().items() if k not in usual or v != usual[k]}
        for entry in found
    ]
    lines = [
        json.dumps(one, ensure_ascii=False, separators=(",", ":"), sort_keys=True) for one in plain
    ]
    assert record_entries.render(found) == ",\n".join(lines)


odd = st.sampled_from(
    (None, True, False, 0, -1, 1 << 32, 1 << 63, 1.0, "", "weight", [], [1, True], [1.0], [-1])
) | st.sampled_from(([1 << 63], [[1]], {}, ["weight"], [2, 3]))
items = st.builds(
    lambda entry, change: {**json.loads(record_entries.render([entry])), **change},
    values,
    st.just({}) | st.dictionaries(st.sampled_from((*Entry._fields, "other")), odd, max_size=2),
)


@settings(max_examples=500)
@given(st.lists(items | odd, max_size=3))
def test_values_are_read_as_one_after_the_other_or_refused(found: list[Any]) -> None:
    reader = record._RecordReader("ckpt-1.tfckpt.json")
    try:
        expected = reader.entries(found)
    except DamagedCheckpointError:
        assert record_entries.parse(found) is None
    else:
        assert record_entries.parse(found) == expected


named = st.lists(
    values.filter(lambda entry: entry.name), max_size=4, unique_by=lambda entry: entry.name
)


@given(named)
def test_values_are_read_as_they_were_written(found: list[Entry]) -> None:
    read = record_entries.parse(json.loads(f"[{record_entries.render(found)}]"))
    assert read == {entry.name: entry for entry in found}
