"""A headless Chromium for tests of pages: exact widths, both colour schemes, and what the console said."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver

#: A phone, a laptop, a wide screen.
WIDTHS = (390, 1280, 1920)
SCHEMES = ("light", "dark")


class Browser:
    """One browser; `show` loads a page as it looks at one width in one scheme."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def show(self, page: Path, width: int, scheme: str, media: str = "") -> None:
        """Load the page."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            # Where a page scrolls to is looked at right after a key, and not when it has arrived there.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self._driver.get(page.as_uri())

    def ask(self, script: str) -> Any:
        """What a script returns."""
        return self._driver.execute_script(f"return {script.strip()}")

    def press(self, keys: str) -> None:
        """Type, as a reader would, into whatever has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self._driver).send_keys(keys).perform()

    def console(self) -> list[str]:
        """What the console said since the last call."""
        entries = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [f"{entry['level']}: {entry['message']}" for entry in entries]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser without a display; as root it needs to run without its sandbox."""
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    options.binary_location = str(binary)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
