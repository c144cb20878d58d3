"""Chromium without a window, for pages that are files; tests are skipped where it is not installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 20  # the longest wait for anything
SIZE = (1280, 800)
MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]

needs_chromium = pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} is not installed")


class Browser(NamedTuple):
    """A page in Chromium, asked by CSS selectors."""

    driver: webdriver.Chrome

    def open(self, page: Path) -> None:
        self.driver.get(page.as_uri())
        self.wait(lambda: self.all("#drawing svg g.node"))

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.run(f"return document.querySelector({selector!r}).innerText")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.driver, SECONDS, 0.05).until(lambda _: condition())

    def wheel(self, selector: str, down: int) -> None:
        """Turn the wheel above the middle of an element."""
        over = ScrollOrigin.from_element(self.one(selector))
        ActionChains(self.driver).scroll_from_origin(over, 0, down).perform()

    def complaints(self) -> list[str]:
        """What the console was told since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def screenshot(self, path: Path) -> Path:
        self.driver.save_screenshot(str(path))
        return path


def start() -> Browser:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(SECONDS)
    driver.set_script_timeout(SECONDS)
    width, height = SIZE
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return Browser(driver)
