"""What selectors match, what renames make of names, and what both refuse."""

from __future__ import annotations

import pytest

from tfckpt.core.selectors import MAX_PATTERN, Selector, compile_rename
from tfckpt.core.similar import near_selectors


@pytest.mark.parametrize(
    ("pattern", "matched", "unmatched"),
    [
        ("model/**", ["model/a", "model/a/b/kernel", "model"], ["models/a", "a/model/b"]),
        ("model/*/kernel", ["model/a/kernel"], ["model/a/b/kernel", "model/kernel"]),
        ("model/block_?", ["model/block_1"], ["model/block_", "model/block_12", "model/block_/"]),
        ("model/[a-c1-3]", ["model/b", "model/2"], ["model/d", "model/-"]),
        ("model/[]x]", ["model/]", "model/x"], ["model/[]x]"]),
        ("model/w[[]0]", ["model/w[0]"], ["model/w0"]),
        ("**/conv_*/**", ["conv_1", "a/conv_1/b/kernel"], ["a/conv/b"]),
        ("model/a.c+", ["model/a.c+"], ["model/abc"]),
        ("Model/A", ["Model/A"], ["model/a"]),
        (
            r"re:model/block_(\d+)/.*",
            ["model/block_12/a/b"],
            ["model/block_x/a", "xmodel/block_1/"],
        ),
        ("re:a{", ["a{"], ["a"]),
        (r"re:a\{,2}|[{,2}]+|\\C", ["a{,2}", "{,2}", "\\C"], ["aa", "C"]),
        (r"re:\w+_\d", ["a_1"], ["a-b_1", "a_x", "größe_1"]),
        (r"re:[\pL_]+_\pN", ["größe_1", "層_٣"], ["a-b_1", "a_x"]),
        (r"re:[^\W_]+/\S\W", ["e9/a-"], ["e_9/a-", "e9/ -", "e9/ab"]),
        ("re:[[:alpha:]]", ["a", "b"], ["1", "a]"]),
        (r"re:(?i)(?:^|.*\b)A(?:$|/b)", ["a", "x/A", "x-a/B"], ["xa", "a/c"]),
        ("[.-1]a", [".a", "0a"], ["/a", "2a"]),
        ("*\udcff/**", ["a\udcff", "\udcff/\ud800"], ["a\udcfe"]),
        (r"re:[\[a]\$", ["[$", "a$"], ["\\$", "a"]),
        ("re:" + "|".join(map(str, range(100, 340))), ["100", "339"], ["340", "10"]),
        ("re:" + "|" * 980 + "a", ["", "a"], ["aa", "|"]),
    ],
)
def test_a_pattern_matches_whole_names(
    pattern: str, matched: list[str], unmatched: list[str]
) -> None:
    selector = Selector(pattern)
    assert [name for name in matched if not selector.matches(name)] == []
    assert [name for name in unmatched if selector.matches(name)] == []
    assert selector.pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", "empty"),
        ("re:", "empty"),
        ("model/", "'model/\\*\\*'"),
        ("/model", "empty level"),
        ("a//b", "empty level"),
        ("model/a**", "a level of its own"),
        ("model/[ab", "is not closed"),
        ("model/[c-a]", "invalid character class"),
        ("model/[]", "nothing is in it|is not closed"),
        ("model/[!]", "nothing is in it"),
        ("re:a(b", r"'\(' is not closed, in 'a\(b'; the syntax is RE2's"),
        ("re:a)b", r"unmatched '\)', in 'a\)b'"),
        ("re:[ab", r"'\[' is not closed, in '\[ab'"),
        ("re:x[b-a]", "invalid character class range: b-a, at character 3 of"),
        ("re:*a", r"no argument for repetition operator: \*, at character 1 of"),
        ("re:a**", r"bad repetition operator: \*\*, at character 2 of"),
        ("re:a{2,1}", r"invalid repetition size: \{2,1\}, at character 2 of"),
        ("re:a{99999}", "invalid repetition size"),
        ("re:(?:(?:a{30}){30}){30}", "invalid repetition size"),
        (r"re:(a)\1", r"invalid escape sequence: \\1, at character 4 of .*back-references"),
        ("re:a(?=b)", r"\(\?=, at character 2 of 'a\(\?=b\)'; the syntax .* look-around"),
        ("re:[(?<!]é(?<!b)", r"\(\?<!, at character 8 of"),
        ("re:(?P<x>a)(?P<x>b)", "two groups have the same name"),
        ("re:a{,2}", r"reads '\{,2\}' as text, at character 2 of 'a\{,2\}'; write '\{0,2\}'"),
        (r"re:[{,2}]{,}", r"at character 7 of .*write '\{0,\}'"),
        (r"re:\\\C", r"as a byte, at character 3 of .*write '\.'"),
        ("a" * (MAX_PATTERN + 1), "longer than"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Selector(pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("re:(a+)+b", "a" * 200),
        ("re:(a|a)*b", "a" * 200),
        ("re:.*.*.*.*.*.*x", "a" * 200),
        ("re:(.*a){10}", "a" * 200 + "b"),
        ("re:(a*)*b", "a" * 200),
        ("*a" * 40 + "b", "a" * 400),
        ("**/a/" * 40 + "b", "/".join("a" * 400)),
    ],
)
def test_no_pattern_runs_away(pattern: str, name: str) -> None:
    assert not Selector(pattern).matches(name)


@pytest.mark.parametrize(
    ("checkpoint", "model", "stored", "live"),
    [
        ("model/backbone/**", "model/encoder/**", "model/backbone/a/k", "model/encoder/a/k"),
        ("model/backbone/**", "model/encoder/**", "model/backbone", "model/encoder"),
        ("**/gamma", "**/scale", "gamma", "scale"),
        ("a/*_*/b", "b/*/*", "a/x_y_z/b", "b/x/y_z"),
        ("a/[xy]?/**", "b/[xy]-?/**", "a/x1/k", "b/x-1/k"),
        ("model/head", "model/classes", "model/headless", None),
        ("model/*/k", "model/*/v", "model/a/b/k", None),
        # several stars take as little as they can, from the left
        ("**/a/**", "x/**/a/y/**", "b/a/c/a/d", "x/b/a/y/c/a/d"),
        ("**/a/**", "x/**/a/y/**", "a/a", "x/a/y/a"),
        ("**/**/*", "x/**/y/**/*", "a/b/c", "x/y/a/b/c"),
        ("*/**/b/**/*", "*/x/**/b/y/**/*", "b/b/b/b/a", "b/x/b/y/b/b/a"),
        (r"re:model/block_(\d+)/(.*)", r"model/blk\1/\2", "model/block_7/a/k", "model/blk7/a/k"),
        (r"re:(?P<l>\w+)/(?P<r>\w+)", r"\g<r>/\g<l>", "a/b", "b/a"),
        (r"re:(a)", r"\g<0>\\\g<1>", "a", "a\\a"),
        (r"re:(a|ab)(c|bcd)(d*)", r"\1-\2-\3", "abcd", "a-bcd-"),
    ],
)
def test_a_rename_says_what_a_stored_name_is_called(
    checkpoint: str, model: str, stored: str, live: str | None
) -> None:
    assert compile_rename(checkpoint, model)(stored) == live


@pytest.mark.parametrize(
    ("checkpoint", "model", "text"),
    [
        ("a/**", "b/*", "same wildcards"),
        ("a/*/**", "b/**/*", "same wildcards"),
        ("a/[xy]", "b/[xz]", "same wildcards"),
        ("a/b", "re:b", "cannot be a regular expression"),
        (r"re:(a)", r"\2", "does not have"),
        (r"re:(a)", r"\g<x>", "does not have"),
        (r"re:(a)", r"a\d", "does not have"),
        ("re:(a)", "b/*", "wildcard"),
        ("re:(", "b", "is not closed"),
        ("re:a", "", "empty"),
        ("a//b", "b", "empty level"),
        ("a", "", "empty"),
    ],
)
def test_a_pair_that_does_not_fit_is_refused(checkpoint: str, model: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        compile_rename(checkpoint, model)


NAMES = ["model/encoder/dense/kernel", "model/encoder/dense/bias", "model/head/kernel", "step"]


def test_a_misspelt_selector_suggests_what_it_may_have_meant() -> None:
    assert near_selectors("model/hed/*", NAMES) == ["model/head/kernel"]
    assert near_selectors("model/hed/**", NAMES) == ["model/head/**"]
    assert near_selectors("model/encodr/**", NAMES) == ["model/encoder/**"]
    assert near_selectors("re:model/haed/.*", NAMES) == ["model/head/kernel"]
    assert near_selectors("stp", NAMES) == near_selectors("stp/**", NAMES) == ["step"]
    assert near_selectors("dense/*", NAMES) == ["model/encoder/dense/*"]
    assert near_selectors("zzz/bias", NAMES) == ["model/encoder/dense/bias"]
