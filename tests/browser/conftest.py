"""One browser for all tests, without a window, and the pages that it opens."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from zoo.report_documents import LARGE, RUN

from tfckpt.pages.run_page import run_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from zoo.browser_page import OpenPage

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
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
    opened.set_script_timeout(20)
    yield opened
    opened.quit()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a run, and that of one with hundreds of checkpoints."""
    directory = tmp_path_factory.mktemp("pages")
    paths = {kind: directory / f"{kind}.html" for kind in ("run", "large")}
    for path, found in zip(paths.values(), (RUN, LARGE), strict=True):
        path.write_text(run_page("runs/a", found), encoding="utf-8")
    return paths


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[..., OpenPage]]:
    """Opens a page, and at the end has seen no error and no request."""
    from zoo.browser_page import OpenPage as Shown

    shown: list[OpenPage] = []

    def open_page(kind: str, anchor: str = "", width: int = 1000, **more: Any) -> OpenPage:
        shown.append(Shown(browser, pages[kind], anchor, width, **more))
        return shown[-1]

    yield open_page
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    if shown:
        assert shown[-1].requests() <= {path.as_uri() for path in pages.values()}
