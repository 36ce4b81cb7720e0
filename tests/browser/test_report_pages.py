"""The page of `tfckpt report` in a browser: what clicks and keys do, in any width and mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.browser_page import OpenPage

    Opened = Callable[..., OpenPage]

Keys = pytest.importorskip("selenium.webdriver.common.keys", reason="needs selenium").Keys
KINDS = ("run", "large")
NEWEST_FIRST = [f"ckpt-{number}" for number in range(12, 0, -1)]


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 400, 1000, 1600])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_the_window(
    kind: str, width: int, is_dark: bool, opened: Opened
) -> None:
    page = opened(kind, width=width, is_dark=is_dark, anchor="ckpt-3")
    assert page.ask("return document.documentElement.scrollWidth") <= width
    background = page.ask("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(", "))) < 200) == is_dark


def test_everything_that_can_be_used_has_a_name_and_shows_the_focus(opened: Opened) -> None:
    page = opened("run")
    for element in page.all("button, input, select, a"):
        if element.is_displayed():
            assert element.accessible_name, element.get_attribute("outerHTML")
    page.press(Keys.TAB)
    style = "return getComputedStyle(document.activeElement)"
    assert page.ask(f"{style}.outlineStyle") != "none" or page.all(".mark:focus-visible")


def test_markup_in_a_name_is_text(opened: Opened) -> None:
    page = opened("run")
    assert page.all("img, script[src], iframe, style + style") == []


def test_without_scripts_everything_is_there_to_read(opened: Opened) -> None:
    page = opened("large", scripts=False)
    assert not page.one("input").is_displayed()
    assert page.one("[id=ckpt-1]").is_displayed()
    page = opened("run", scripts=False)
    assert page.one(".mark.best").is_displayed()


# --- the table


def test_search(opened: Opened) -> None:
    page = opened("run")
    assert page.names() == NEWEST_FIRST
    page.search("CKPT best")
    assert page.names() == ["ckpt-3"]
    assert page.one("output").text == "1 of 12"
    page.search("")
    assert page.one("output").text == ""
    assert page.names() == NEWEST_FIRST


def test_sort(opened: Opened) -> None:
    page = opened("run")
    head = next(one for one in page.all("th.number button") if one.text == "val_loss")
    head.click()
    assert page.names() == NEWEST_FIRST[::-1]  # 2 over the number: the greatest first
    assert page.one("[aria-sort]").get_attribute("aria-sort") == "descending"
    head.click()
    assert page.names() == NEWEST_FIRST
    page.one("select[aria-label='sort by']").send_keys("sort by name")
    assert page.names() == NEWEST_FIRST[::-1]  # by number, not by letter


def test_of_many_rows_some_are_shown_and_more_on_demand(opened: Opened) -> None:
    page = opened("large")
    first = len(page.names())
    assert 100 <= first < 300
    assert "of 600" in page.one(".more").text
    page.click(".more")
    assert len(page.names()) == 2 * first
    page.search("ckpt-77")
    assert page.names() == ["ckpt-77"]


@pytest.mark.parametrize(
    ("kind", "name"), [("run", "ckpt-12"), ("run", "ckpt-1"), ("large", "ckpt-2")]
)
def test_a_link_leads_to_a_row(kind: str, name: str, opened: Opened) -> None:
    page = opened(kind, anchor=name)
    (row,) = page.all("tr.shown")
    assert row.get_attribute("id") == name
    top = page.ask("return arguments[0].getBoundingClientRect().top", row)
    assert 0 <= top <= 800


def test_a_click_on_a_name_makes_its_link(opened: Opened) -> None:
    page = opened("run")
    page.click("[id=ckpt-7] a")
    url = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(url)
    assert page.one("tr.shown").get_attribute("id") == "ckpt-7"


def test_a_click_on_the_line_leads_to_the_row(opened: Opened) -> None:
    page = opened("run")
    page.click(".mark.best g")
    assert page.one("tr.shown").get_attribute("id") == "ckpt-3"
    page.search("ckpt-12")
    page.click(".mark.damaged g")
    assert page.one("tr.shown").get_attribute("id") == "ckpt-1"


def test_the_line_with_the_keyboard(opened: Opened) -> None:
    page = opened("run")
    page.ask("[...document.querySelectorAll('.mark')].at(-1).focus()")
    assert page.focused().startswith("ckpt-12")
    assert "val_loss" in page.focused()
    page.press(Keys.ENTER)
    assert page.one("tr.shown").get_attribute("id") == "ckpt-12"
