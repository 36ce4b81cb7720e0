"""A page in a browser: what is seen, and what a person does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver.remote.webelement import WebElement


class OpenPage:
    """A page that a browser shows."""

    def __init__(
        self,
        browser: Any,
        path: Path,
        anchor: str = "",
        width: int = 1000,
        *,
        is_dark: bool = False,
        scripts: bool = True,
    ) -> None:
        self.browser = browser
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme])
        self._command("Emulation.setScriptExecutionDisabled", value=not scripts)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", **size)
        browser.get("about:blank")  # the same page with another anchor would not be loaded again
        browser.get(path.as_uri() + (f"#{quote(anchor)}" if anchor else ""))

    def _command(self, name: str, **arguments: Any) -> None:
        self.browser.execute_cdp_cmd(name, arguments)

    def one(self, selector: str) -> WebElement:
        found: WebElement = self.browser.find_element(By.CSS_SELECTOR, selector)
        return found

    def all(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return found

    def names(self) -> list[str]:
        """The ids of the rows of the first table that are shown."""
        return self.ask("return [...document.querySelector('tbody').rows].map((row) => row.id)")

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def wait(self, script: str) -> Any:
        """What a script gives to the function ``done``."""
        return self.browser.execute_async_script(f"const done = arguments[0]; {script}")

    def click(self, selector: str) -> None:
        element = self.one(selector)
        self.ask("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def press(self, *keys: str) -> None:
        """Keys that the element with the focus gets."""
        ActionChains(self.browser).send_keys(*keys).perform()

    def search(self, words: str) -> None:
        field = self.one("input[type=search]")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(words or Keys.DELETE)

    def focused(self) -> str:
        """The accessible name of the element with the focus."""
        return str(self.browser.switch_to.active_element.accessible_name)

    def requests(self) -> set[str]:
        """The URLs of everything that was asked for since the last time."""
        entries = [json.loads(e["message"])["message"] for e in self.browser.get_log("performance")]
        sent = [e["params"] for e in entries if e["method"] == "Network.requestWillBeSent"]
        urls = {one["request"]["url"].partition("#")[0] for one in sent}
        return {url for url in urls if url != "about:blank"}
