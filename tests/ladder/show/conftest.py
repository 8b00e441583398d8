"""A browser to look at pages with.

Tests in it are skipped where there is no chromium with its chromedriver; where LADDER_BROWSER is
set, as .ci/run does, a missing browser is a failure.
"""

import os
import shutil
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def browser():
    """Chromium with a window of 1200 pixels."""
    programs = [find_spec("selenium"), *map(shutil.which, ("chromium", "chromedriver"))]
    if not all(programs):
        stop = pytest.fail if "LADDER_BROWSER" in os.environ else pytest.skip
        stop("needs selenium, chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[1]
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=programs[2])
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


@pytest.fixture
def chromium(browser):
    """The browser, whose console has no word at the end: nor of what the page's policy refuses."""
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert browser.get_log("browser") == []
    browser.get("about:blank")  # an address that differs after # alone loads nothing anew


@pytest.fixture
def narrow(chromium):
    """narrow(width): make the window so wide; the page needs no more."""

    def resize(width):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert chromium.execute_script("return document.documentElement.scrollWidth") == width

    return resize
