"""A real browser without a window, and what it says of a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def opened(browser: Browser, file: Path, *, width: int = 1280, scheme: Any = "light") -> Iterator[Page]:
    """The page with all its charts; what it says on the console or asks of a network is an error."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if _is_remote(request.url) else None)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached", timeout=30_000)
    try:
        yield page
    finally:
        context.close()
    assert complaints == []


def _is_remote(url: str) -> bool:
    return not url.startswith(("file:", "data:"))


def rows(page: Page, table: str) -> list[dict[str, str]]:
    """What a table says, by its headings.

    Args:
        page: The page.
        table: A selector of it; the first that fits is taken.
    """
    found = page.locator(table).first
    heads = [head.strip().replace("\xa0", " ") for head in found.locator("thead th").all_inner_texts()]
    lines = found.locator("tbody tr").all()
    return [dict(zip(heads, line.locator("th, td").all_inner_texts(), strict=True)) for line in lines]
