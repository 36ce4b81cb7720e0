"""The pages of `tfckpt report` in a browser: what clicks and keys do, in any width and mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from zoo.plan_documents import HOSTILE
from zoo.report_documents import IMAGE, LAYERS, VALUES

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.browser_page import OpenPage

    Opened = Callable[..., OpenPage]

Keys = pytest.importorskip("selenium.webdriver.common.keys", reason="needs selenium").Keys
KINDS = ("checkpoint", "large", "run", "difference", "plan", "movement")
SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 400, 1000, 1600])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_the_window(
    kind: str, width: int, is_dark: bool, opened: Opened
) -> None:
    page = opened(kind, width=width, is_dark=is_dark)
    assert page.ask("return document.documentElement.scrollWidth") <= width
    background = page.ask("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(", "))) < 200) == is_dark


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_can_be_used_has_a_name_and_shows_the_focus(
    kind: str, opened: Opened
) -> None:
    page = opened(kind)
    for element in page.all("button, input, select, a, [role=button]"):
        if element.is_displayed():
            assert element.accessible_name, element.get_attribute("outerHTML")
    page.press(Keys.TAB)
    style = "return getComputedStyle(document.activeElement)"
    assert page.ask(f"{style}.outlineStyle") != "none" or page.all(".mark:focus-visible")


@pytest.mark.parametrize("kind", KINDS)
def test_markup_in_a_name_is_text(kind: str, opened: Opened) -> None:
    page = opened(kind)
    assert page.all("img, script[src], iframe, style + style") == []


def test_without_scripts_everything_is_there_to_read(opened: Opened) -> None:
    page = opened("large", scripts=False)
    assert not page.one("input").is_displayed()
    assert page.one("[id='model/block_99/up/kernel']").is_displayed()
    assert not page.one(".map").is_displayed()
    page = opened("run", scripts=False)
    assert all(article.is_displayed() for article in page.all("article"))


# --- the table


def test_search(opened: Opened) -> None:
    page = opened("checkpoint")
    page.search("embed KERNEL")
    leaves = [name for name in page.names() if name.endswith("kernel")]
    assert leaves == ["model/embed/kernel", "optimizer/momentum/embed/kernel"]
    assert page.one("output[aria-live]").text == f"2 of {len(VALUES)}"
    page.search("slot")
    assert "model/embed/kernel" not in page.names()
    page.search("")
    assert page.one("output[aria-live]").text == ""
    assert "model/embed/kernel" in page.names()


def test_sort(opened: Opened) -> None:
    page = opened("checkpoint")
    by_size = sorted(VALUES, key=lambda one: one["nbytes"])
    page.click("th.bytes button")
    assert page.one("th.bytes").get_attribute("aria-sort") == "descending"
    largest = {one["name"] for one in by_size[-2:]}
    assert set(page.names()[:2]) == largest
    page.click("th.bytes button")
    assert page.names()[0] == "optimizer/iterations"
    mean = next(head for head in page.all("th.number button") if head.text == "mean")
    mean.click()
    assert page.names()[0] == IMAGE  # the last of them, whose mean is the greatest
    select = page.one("select[aria-label='sort by']")
    select.send_keys("sort by name")
    assert "model/embed" in page.names()  # the tree again


def test_filter(opened: Opened) -> None:
    page = opened("checkpoint")
    page.click("[data-tag=slot]")
    assert page.one("[data-tag=slot]").get_attribute("aria-pressed") == "true"
    assert not [name for name in page.names() if name.startswith("model")]
    page.click("[data-tag=iterations]")
    assert "optimizer/iterations" in page.names()
    assert page.one("output[aria-live]").text == f"4 of {len(VALUES)}"


def test_fold(opened: Opened) -> None:
    page = opened("checkpoint")
    page.click(".close")
    assert page.names() == ["model", "optimizer"]
    page.click("[id=model] .fold")
    assert page.one("[id=model] .fold").get_attribute("aria-expanded") == "true"
    assert "model/embed" in page.names()
    assert "model/embed/kernel" not in page.names()
    page.click(".open")
    assert "model/embed/kernel" in page.names()


def test_fold_with_the_keyboard(opened: Opened) -> None:
    page = opened("checkpoint")
    page.click(".close")
    page.ask("document.querySelector('[id=model] .fold').focus()")
    page.press(Keys.ARROW_RIGHT)
    assert "model/embed" in page.names()
    page.press(Keys.ARROW_DOWN)
    assert page.focused() != "model"
    page.press(Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert page.names() == ["model", "optimizer"]
    assert page.focused() == "model"


def test_of_many_rows_some_are_shown_and_more_on_demand(opened: Opened) -> None:
    page = opened("large")
    assert len(page.names()) < 100
    page.click(".open")
    first = len(page.names())
    assert 100 <= first < 500
    assert "of 602" in page.one(".more").text  # 500 values, 100 blocks, the model, the optimizer
    page.ask("document.querySelector('.more').click()")
    assert len(page.names()) == 2 * first
    page.search("block_77/up")
    assert "model/block_77/up/kernel" in page.names()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("checkpoint", "model/embed/kernel"),
        ("checkpoint", SHOWN),
        ("large", "model/block_99/up/kernel"),
        ("large", "optimizer/momentum/block_299"),
        ("large", "model/block_99"),
        ("difference", "optimizer/momentum/wild/kernel"),  # filtered out at first
        ("movement", "model/wild/kernel"),
    ],
)
def test_a_link_leads_to_a_row(kind: str, name: str, opened: Opened) -> None:
    page = opened(kind, anchor=name)
    (row,) = page.all("tr.shown")
    assert row.get_attribute("id") == name
    top = page.ask("return arguments[0].getBoundingClientRect().top", row)
    assert 0 <= top <= 800


def test_a_click_on_a_name_makes_its_link(opened: Opened) -> None:
    page = opened("checkpoint")
    page.click("[id='model/embed/kernel'] a")
    url = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(url)
    assert page.one("tr.shown").get_attribute("id") == "model/embed/kernel"


def test_a_name_is_copied(opened: Opened) -> None:
    page = opened("checkpoint")
    page.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click("[id='model/embed/kernel'] a")
    page.click("[id='model/embed/kernel'] .copy")
    assert page.ask("return window.copied") == "model/embed/kernel"
    assert page.one(".copy").text == "copied"


def test_a_command_is_copied(opened: Opened) -> None:
    page = opened("run", anchor="ckpt-3")
    page.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click(".detail .command")
    assert page.one(".detail .command").text == "copied"
    page.click(".detail .command")
    assert page.ask("return window.copied") == "tfckpt report runs/a/ckpt-3 --values --open"


# --- the treemap


def labels(page: OpenPage) -> list[str]:
    return [box.get_attribute("aria-label") or "" for box in page.all(".map .box")]


def test_the_areas_of_boxes_are_as_sizes(opened: Opened) -> None:
    page = opened("checkpoint")
    areas = {
        box.get_attribute("aria-label").split(" ")[0]: box.size["width"] * box.size["height"]
        for box in page.all(".map .box.leaf")
    }
    kernels = {layer: areas[f"model/{layer}/kernel"] for layer in ("embed", "body")}
    assert kernels["embed"] / kernels["body"] == pytest.approx(
        LAYERS["embed"] / LAYERS["body"], rel=0.25
    )
    assert not [label for label in labels(page) if label.startswith("optimizer")]  # weights first
    page.one(".sizes select").send_keys("everything")
    assert [label for label in labels(page) if label.startswith("optimizer")]


def test_zoom_with_the_mouse(opened: Opened) -> None:
    page = opened("checkpoint")
    page.click(".box.leaf[aria-label^='model/embed/kernel ']")
    assert "model/embed ·" in page.one(".sizes nav").text
    assert labels(page)[0].startswith("model/embed/kernel ")
    page.click(".sizes nav button")
    assert "model ·" in page.one(".sizes nav").text
    page.click(".box.leaf[aria-label^='model/body/kernel ']")
    assert "model/body ·" in page.one(".sizes nav").text
    page.click(".box.leaf[aria-label^='model/body/kernel ']")
    assert page.one("tr.shown").get_attribute("id") == "model/body/kernel"


def test_zoom_with_the_keyboard(opened: Opened) -> None:
    page = opened("checkpoint")
    page.ask("document.querySelector('.map .box').focus()")
    assert page.focused().startswith("model/embed ")
    page.press(Keys.ARROW_RIGHT)
    assert page.focused().startswith("model/")
    assert not page.focused().startswith("model/embed ")
    page.press(Keys.ARROW_LEFT)
    assert page.focused().startswith("model/embed ")
    page.press(Keys.ENTER)
    assert page.focused().startswith("model/embed/kernel")
    page.press(Keys.ESCAPE)
    assert page.focused().startswith("model/embed ")
    page.press(Keys.ENTER, Keys.ENTER)
    assert page.one("tr.shown").get_attribute("id") == "model/embed/kernel"


def test_the_treemap_shows_what_the_filter_shows(opened: Opened) -> None:
    page = opened("checkpoint")
    page.click("[data-tag=slot]")
    assert labels(page)
    assert all(label.startswith("optimizer") for label in labels(page))


def test_a_box_says_how_far_its_values_moved(opened: Opened) -> None:
    page = opened("difference")
    (wild,) = [label for label in labels(page) if label.startswith("model/wild/kernel")]
    assert wild.startswith("model/wild/kernel 50% changed")
    assert page.names()[0] == "model/wild/kernel"  # sorted by change, the weights alone
    assert page.one("[data-tag=weight]").get_attribute("aria-pressed") == "true"


# --- the line of a run


def test_a_click_opens_what_is_known_about_a_checkpoint(opened: Opened) -> None:
    page = opened("run")
    assert not any(article.is_displayed() for article in page.all("article"))
    page.click(".mark.best")
    (shown,) = [article for article in page.all("article") if article.is_displayed()]
    assert shown.text.startswith("ckpt-3")
    assert "tfckpt report runs/a/ckpt-3 --values --open" in shown.text
    assert page.one("tr.shown").get_attribute("id") == "ckpt-3"
    page.click("[id=ckpt-12] td")
    (shown,) = [article for article in page.all("article") if article.is_displayed()]
    assert shown.text.startswith("ckpt-12")


def test_the_line_with_the_keyboard(opened: Opened) -> None:
    page = opened("run")
    page.ask("document.querySelector('.mark[tabindex=\"0\"]').focus()")
    assert page.focused().startswith("ckpt-12")
    page.press(Keys.ARROW_LEFT)
    assert page.focused().startswith("ckpt-11")
    assert "val_loss" in page.one(".tip").text
    page.press(Keys.HOME)
    assert page.focused().startswith("ckpt-1 ")
    page.press(Keys.ENTER)
    (shown,) = [article for article in page.all("article") if article.is_displayed()]
    assert "is torn" in shown.text
    page.press(Keys.ESCAPE)
    assert not any(article.is_displayed() for article in page.all("article"))


def test_checkpoints_stand_where_their_steps_are(opened: Opened) -> None:
    page = opened("run")
    at = [float(m.get_attribute("transform")[10:].split(",")[0]) for m in page.all(".mark")]
    steps = [at[n + 1] - at[n] for n in range(11)]
    assert steps == [pytest.approx(steps[0])] * 11
    heights = [float(bar.get_attribute("height")) for bar in page.all(".bar")][-12:]
    expected = [(1 << 20) + (number << 17) for number in range(1, 13)]
    assert [height / heights[-1] for height in heights] == pytest.approx(
        [size / expected[-1] for size in expected], rel=1e-3
    )


def test_the_tables_of_movement_are_two(opened: Opened) -> None:
    page = opened("movement")
    assert len(page.all("table")) == 2
    page.click("th.number button")
    assert page.names()[0] == "model/wild/kernel"
    page.browser.get(page.browser.current_url.partition("#")[0] + "#first:model/calm/kernel")
    assert page.one("tr.shown").get_attribute("id") == "first:model/calm/kernel"
