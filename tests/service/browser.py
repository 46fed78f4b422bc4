"""The page in a real browser, Chromium without a window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
AXE = Path(os.environ.get("JOULECAST_AXE", "build/axe.min.js"))
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--window-size=1360,1000", "--lang=en"]

# The page says when it is done; asking it again and again would keep it from its work.
SHOWN = """
const done = arguments[0], results = document.getElementById("results");
const look = () => { if (results.getAttribute("aria-busy") === "false") { observer.disconnect(); done(); } };
const observer = new MutationObserver(look);
observer.observe(results, {attributes: true});
look();
"""


class Page:
    def __init__(self, driver, url):
        self.driver, self.url = driver, url

    def open(self, fragment=""):
        self.complaints()  # Those of the page before belong to another test.
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{fragment}")
        return self.wait()

    def wait(self):
        """Wait until everything that was asked for is shown. A question is under way before its event has ended."""
        self.driver.execute_async_script(SHOWN)
        return self

    def until(self, claim):
        """Wait until a claim holds."""
        until(claim, otherwise=lambda: self.text("body"))

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.find(selector).text

    def texts(self, selector):
        return [element.text for element in self.driver.find_elements("css selector", selector)]

    def press(self, key):
        """Press a key, whatever has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def choose(self, selector, value):
        """As a person would: the value, and the event of a change."""
        self.js(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('change', {bubbles: true}))",
            selector,
            value,
        )
        return self.wait()

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def resize(self, width, height=768, *, scheme="light"):
        """Give the page another size and colour scheme; without a width, those of the window."""
        if width is None:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        else:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def faults(self):
        """What axe finds wrong for people with disabilities: rules, with the elements that break them."""
        # Through the debugger, because the page's own policy lets no script in from outside.
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
        found = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        return [(fault["id"], [node["html"][:120] for node in fault["nodes"]][:3]) for fault in found["violations"]]


@contextmanager
def browsing(url: str, folder: Path) -> Iterator[Page]:
    """A browser for the page of a service; skips the test where there is none."""
    if not CHROMIUM or not CHROMEDRIVER:
        pytest.skip("needs chromium and chromedriver")
    pytest.importorskip("selenium", reason="needs selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    driver.set_page_load_timeout(180)
    driver.set_script_timeout(300)
    driver.command_executor.client_config.timeout = 300  # Or a busy machine would be given up before the script is.
    try:
        yield Page(driver, url)
    finally:
        driver.quit()
