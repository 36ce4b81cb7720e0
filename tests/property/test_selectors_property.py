"""Selectors against the plainest reading of their rules, and against Python's own ``re``."""

from __future__ import annotations

import fnmatch
import re
import warnings

from hypothesis import assume, given
from hypothesis import strategies as st

from tfckpt.core.selectors import Selector, compile_rename
from tfckpt.core.similar import near_selectors

LEVEL = st.text("ab_", min_size=1, max_size=4)
NAME = st.lists(LEVEL, min_size=1, max_size=5).map("/".join)
TOKEN = st.sampled_from(["a", "b", "_", "?", "*", "[ab]", "[!a]", "[a-b_]"])
GLOB_LEVEL = st.lists(TOKEN, min_size=1, max_size=4).map("".join).filter(lambda t: "**" not in t)
GLOB = st.lists(GLOB_LEVEL | st.just("**"), min_size=1, max_size=5).map("/".join)


def naive(levels: list[str], parts: list[str]) -> bool:
    if not levels:
        return not parts
    first, *rest = levels
    if first == "**":
        return any(naive(rest, parts[i:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], first) and naive(rest, parts[1:])


@given(GLOB, NAME | st.text("ab_/\n", max_size=12))
def test_a_glob_matches_what_its_rules_say(glob: str, name: str) -> None:
    assert Selector(glob).matches(name) == naive(glob.split("/"), name.split("/"))


@given(GLOB, NAME)
def test_renaming_to_the_same_pattern_changes_nothing(glob: str, name: str) -> None:
    expected = name if naive(glob.split("/"), name.split("/")) else None
    assert compile_rename(glob, glob)(name) == expected


@given(NAME, NAME, st.text("ab_/\n", max_size=12))
def test_a_subtree_is_renamed_as_it_is(old: str, new: str, below: str) -> None:
    rename = compile_rename(f"{old}/**", f"{new}/**")
    assert rename(old) == new
    assert rename(f"{old}/{below}") == f"{new}/{below}"
    assert rename(f"{old}_/{below}") is None


@given(GLOB, NAME)
def test_a_rename_can_be_undone(glob: str, name: str) -> None:
    there, back = compile_rename(glob, f"z/{glob}"), compile_rename(f"z/{glob}", glob)
    renamed = there(name)
    assume(renamed is not None)
    assert renamed == f"z/{name}"
    assert back(renamed) == name


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    times = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}", "{1,}"])
    group = st.tuples(st.sampled_from(["(", "(?:"]), inner).map(lambda t: f"{t[0]}{t[1]})")
    return (
        st.tuples(group, times).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(group, group).map("|".join)
    )


ATOM = st.sampled_from(["a", "b", "_", ".", r"\w", r"\.", "[ab]", "[^a]", r"[\d_]", "/"])
REGEX = st.recursive(ATOM, repeated, max_leaves=8)


@given(REGEX, st.text("ab_/.", max_size=8))
def test_a_regular_expression_matches_what_python_says(expression: str, name: str) -> None:
    expected = re.fullmatch(expression, name) is not None
    assert Selector(f"re:{expression}").matches(name) == expected


@given(st.lists(st.sampled_from(["(a*)", "(b+?)", "(a|ab)", "([^_]*)", "_", "(.?)"]), max_size=5))
def test_groups_are_what_python_says(parts: list[str]) -> None:
    expression = "".join(parts) + "(.*)"
    count = re.compile(expression).groups
    template = "-".join(f"\\g<{i}>" for i in range(1, count + 1))
    rename = compile_rename(f"re:{expression}", template)
    for name in ("", "ab", "aab_b", "abab", "_a_b", "bbaa__"):
        found = re.fullmatch(expression, name)
        assert rename(name) == (found.expand(template) if found else None)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_pattern_or_a_value_error(pattern: str, name: str) -> None:
    for text in (pattern, f"re:{pattern}"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                selector = Selector(text)
            except ValueError:
                continue
            assert selector.matches(name) in {True, False}


@given(st.text(r"ab*+?()[]{}|\.^$1,-P<>:", max_size=20), st.text("ab1-", max_size=6))
def test_what_python_reads_too_is_read_as_python_reads_it(expression: str, name: str) -> None:
    try:
        selector = Selector(f"re:{expression}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            expected = re.compile(expression, re.ASCII).fullmatch(name) is not None
    except (ValueError, re.error):
        return
    assert selector.matches(name) == expected


@given(GLOB, st.lists(NAME, max_size=8))
def test_what_is_suggested_matches_something(pattern: str, names: list[str]) -> None:
    found = near_selectors(pattern, names)
    assert len(found) <= 3
    assert all(any(map(Selector(each).matches, names)) for each in found)
