"""A Chromium for the tests: what is installed, else Debian's package; never a download of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

SHELL = "chromium-headless-shell"
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The best first: Debian's shell for pages without a window needs half the CPU time of a whole Chromium."""
UPDATE = ("apt-get", "update", "-qq")
INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "fonts-dejavu-core")
INSTALL_TIMEOUT_S = 280
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


class NoBrowser(Exception):
    """There is no Chromium, and none may be installed here."""


def find_chromium() -> str:
    """Its path; installs Debian's package where this user may. Raises `NoBrowser` with what to do."""
    found = _installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing chromium for the browser tests")
        for command in (UPDATE, (*INSTALL, SHELL), (*INSTALL, "chromium")):
            if found is None:
                subprocess.run(command, check=False, timeout=INSTALL_TIMEOUT_S, stdout=subprocess.DEVNULL)
                found = _installed()
    if found is None:
        raise NoBrowser(
            f"the browser tests need Chromium, which is not installed: `apt-get install {SHELL}`, "
            f"or put one of {', '.join(NAMES)} on the path"
        )
    return found


def _installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """One that shows nothing."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
