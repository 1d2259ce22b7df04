"""Runs that are trained once, and a browser that is started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from rffl_pl.comparison import chosen, write
from tests.comparison.browser import CHROMIUM, FLAGS
from tests.comparison.runs import train_all


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The runs; nobody changes them."""
    return train_all(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def page_file(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their page."""
    file = tmp_path_factory.mktemp("page") / "compare.html"
    write(*chosen([str(folder) for folder in folders]), file)
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window; playwright has an event loop in this thread as long as it lasts."""
    if not Path(CHROMIUM).is_file():
        pytest.skip(f"needs a browser: {CHROMIUM} is not there (apt-get install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()
