"""A browser for the pages of reports and cards."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>{fonts}</dir><cachedir>{cache}</cachedir>
<match><test name="family"><string>monospace</string></test>
<edit name="family" mode="prepend" binding="strong"><string>DejaVu Sans Mono</string></edit></match>
<match><edit name="family" mode="append" binding="weak"><string>DejaVu Sans</string></edit></match>
</fontconfig>"""
"""Only the fonts that come with matplotlib: a page has the same lines on every machine."""


class Browser:
    """Drives Chromium through ChromeDriver, by the WebDriver protocol."""

    def __init__(self, folder: Path, driver: str, chromium: str, fonts: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        known = folder / "fonts.conf"
        known.write_text(FONTS.format(fonts=fonts, cache=folder / "fonts"))
        self.server = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "FONTCONFIG_FILE": str(known)},
        )  # fmt: skip
        self.address = ("127.0.0.1", port)
        flags = ["headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"]
        flags += ["disable-component-update", "disable-sync", "hide-scrollbars", f"user-data-dir={folder}"]
        flags += ["font-render-hinting=none", "disable-lcd-text", "force-color-profile=srgb"]
        options = {"binary": chromium, "args": [f"--{flag}" for flag in flags]}
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": options}
        self.session = "/session"
        for wait in range(100):
            with contextlib.suppress(OSError):
                self.session = f"/session/{self.call('', capabilities={'alwaysMatch': wanted})['sessionId']}"
                break
            time.sleep(wait / 100)

    def call(self, path: str, **body: Any) -> Any:
        with contextlib.closing(http.client.HTTPConnection(*self.address, timeout=60)) as asked:
            asked.request("POST", f"{self.session}{path}", json.dumps(body))
            return json.load(asked.getresponse())["value"]

    def open(self, file: Path, width: int, scheme: str) -> None:
        self.look(width, scheme)
        self.call("/url", url=file.as_uri())

    def look(self, width: int, scheme: str) -> None:
        self.tool("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        self.tool("Emulation.setDeviceMetricsOverride", **size)

    def tool(self, command: str, **settings: Any) -> Any:
        return self.call("/goog/cdp/execute", cmd=command, params=settings)

    def ask(self, script: str) -> Any:
        return self.call("/execute/sync", script=f"return {script}", args=[])

    def type(self, selector: str, text: str) -> None:
        found = self.call("/element", using="css selector", value=selector)
        self.call(f"/element/{next(iter(found.values()))}/value", text=text)

    def console(self) -> list[str]:
        return [each["message"] for each in self.call("/se/log", type="browser")]

    def picture(self, selector: str = "html") -> bytes:
        """Return what is drawn of the first element of a kind, as PNG."""
        box = self.ask(
            f"(box => [box.x, box.y + scrollY, box.width, box.height])({_found(selector)}.getBoundingClientRect())"
        )
        clip = {**dict(zip(("x", "y", "width", "height"), box, strict=True)), "scale": 1}
        shot = self.tool(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, optimizeForSpeed=True, clip=clip
        )
        return base64.b64decode(shot["data"])


def _found(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser that is started once, or skip."""
    fonts = Path(pytest.importorskip("matplotlib").get_data_path(), "fonts", "ttf")
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        pytest.skip("no Chromium and ChromeDriver: apt-get install chromium chromium-driver")
    started = Browser(tmp_path_factory.mktemp("browser"), driver, chromium, fonts)
    yield started
    with contextlib.suppress(OSError):
        started.tool("Browser.close")
    started.server.terminate()
    started.server.wait()
