"""The page of `tfckpt report` in Chromium: what clicks and keys do, in any width and mode.

Every page that was opened has logged no error and asked for nothing but itself.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from zoo.report_documents import LARGE, RUN

from tfckpt.pages.run_page import run_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
chains = pytest.importorskip("selenium.webdriver.common.action_chains")
waits = pytest.importorskip("selenium.webdriver.support.wait")
By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
NAMES = ("chromium", "chromium-browser", "google-chrome")
NEWEST_FIRST = [f"ckpt-{number}" for number in range(12, 0, -1)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests, without a window."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    driver = shutil.which("chromedriver")
    if found is None or driver is None:
        pytest.skip(f"no browser: needs one of {', '.join(NAMES)}, and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


class OpenPage:
    """A page that a browser shows."""

    def __init__(
        self, browser: Any, path: Path, anchor: str, width: int, dark: bool, scripts: bool
    ) -> None:
        self.browser, self.ask = browser, browser.execute_script
        command = browser.execute_cdp_cmd
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        command("Emulation.setEmulatedMedia", {"features": [scheme]})
        command("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        command("Emulation.setDeviceMetricsOverride", size)
        browser.get("about:blank")  # the same page with another anchor would not be loaded again
        browser.get(path.as_uri() + (f"#{quote(anchor)}" if anchor else ""))

    def one(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements(By.CSS_SELECTOR, selector))

    def names(self) -> list[str]:
        """The ids of the rows of the first table that are shown."""
        return list(
            self.ask("return [...document.querySelector('tbody').rows].map((row) => row.id)")
        )

    def shows(self, name: str) -> bool:
        """Whether a link leads to a row, as soon as the page has followed it."""
        wanted = (By.CSS_SELECTOR, f"tr.shown[id='{name}']")
        return bool(
            waits.WebDriverWait(self.browser, 20).until(lambda it: it.find_elements(*wanted))
        )

    def click(self, selector: str) -> None:
        element = self.one(selector)
        self.ask("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def press(self, key: str) -> None:
        """A key that the element with the focus gets."""
        chains.ActionChains(self.browser).send_keys(key).perform()

    def search(self, words: str) -> None:
        field = self.one("input[type=search]")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(words or Keys.DELETE)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., OpenPage]]:
    """Opens the page of a run, or of one with hundreds of checkpoints."""
    paths = {kind: tmp_path / f"{kind}.html" for kind in ("run", "large")}
    for path, found in zip(paths.values(), (RUN, LARGE), strict=True):
        path.write_text(run_page("runs/a", found), encoding="utf-8")

    def open_page(
        kind: str = "run",
        anchor: str = "",
        width: int = 1000,
        dark: bool = False,
        scripts: bool = True,
    ) -> OpenPage:
        return OpenPage(browser, paths[kind], anchor, width, dark, scripts)

    yield open_page
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    logged = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [one["params"] for one in logged if one["method"] == "Network.requestWillBeSent"]
    urls = {one["request"]["url"].partition("#")[0] for one in sent}
    assert urls <= {"about:blank", *(path.as_uri() for path in paths.values())}


def test_any_width_and_mode_without_scripts_and_by_names(opened: Callable[..., OpenPage]) -> None:
    for kind in ("run", "large"):
        for width, dark in ((320, False), (400, True), (1000, True), (1600, False)):
            page = opened(kind, "ckpt-3", width, dark)
            assert page.ask("return document.documentElement.scrollWidth") <= width
            background = page.ask("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background[4:-1].split(", "))) < 200) == dark
    page = opened()
    assert page.all("img, script[src], iframe, style + style") == []  # markup in a name is text
    for element in page.all("button, input, select, a"):
        if element.is_displayed():
            assert element.accessible_name, element.get_attribute("outerHTML")
    page.press(Keys.TAB)
    style = "return getComputedStyle(document.activeElement)"
    assert page.ask(f"{style}.outlineStyle") != "none" or page.all(".mark:focus-visible")
    page = opened("large", scripts=False)
    assert not page.one("input").is_displayed()
    assert page.one("[id=ckpt-1]").is_displayed()
    assert opened(scripts=False).one(".mark.best").is_displayed()


def test_search_sort_and_more_rows(opened: Callable[..., OpenPage]) -> None:
    page = opened()
    assert page.names() == NEWEST_FIRST
    page.search("CKPT best")
    assert (page.names(), page.one("output").text) == (["ckpt-3"], "1 of 12")
    page.search("")
    assert (page.names(), page.one("output").text) == (NEWEST_FIRST, "")
    head = next(one for one in page.all("th.number button") if one.text == "val_loss")
    head.click()
    assert page.names() == NEWEST_FIRST[::-1]  # 2 over the number: the greatest first
    assert page.one("[aria-sort]").get_attribute("aria-sort") == "descending"
    head.click()
    assert page.names() == NEWEST_FIRST
    page.one("select[aria-label='sort by']").send_keys("sort by name")
    assert page.names() == NEWEST_FIRST[::-1]  # by number, not by letter
    page = opened("large")
    first = len(page.names())
    assert 100 <= first < 300
    assert "of 600" in page.one(".more").text
    page.click(".more")
    assert len(page.names()) == 2 * first
    page.search("ckpt-77")
    assert page.names() == ["ckpt-77"]


def test_links_clicks_and_keys_lead_to_rows(opened: Callable[..., OpenPage]) -> None:
    for kind, name in (("run", "ckpt-12"), ("run", "ckpt-1"), ("large", "ckpt-2")):
        page = opened(kind, name)
        assert page.shows(name)
        row = page.one("tr.shown")
        assert 0 <= page.ask("return arguments[0].getBoundingClientRect().top", row) <= 800
    page = opened()
    page.click("[id=ckpt-7] a")
    url = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(url)
    assert page.shows("ckpt-7")
    page.click(".mark.best g")
    assert page.shows("ckpt-3")
    page.search("ckpt-12")
    page.click(".mark.damaged g")
    assert page.shows("ckpt-1")
    page = opened()
    page.ask("[...document.querySelectorAll('.mark')].at(-1).focus()")
    focused = page.browser.switch_to.active_element.accessible_name
    assert focused.startswith("ckpt-12")
    assert "val_loss" in focused
    page.press(Keys.ENTER)
    assert page.shows("ckpt-12")
