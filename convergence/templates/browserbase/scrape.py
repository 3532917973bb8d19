"""Script to tune: reads the price of one product page."""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from playwright import async_api

CLOSED_BY_A_BUTTON = {"banners": ".cookies", "all": ".cookies, .letter"}
"""`dismiss` → selector of the covers to close."""
FOUND = {
    "class": ".price",
    "itemprop": "[itemprop=price]",
    "label": "xpath=//*[normalize-space()='Price']/following-sibling::*[1]",
}
"""`find_by` → selector of the price."""


async def close(cover: async_api.Locator) -> None:
    """Press the button of a cover."""
    with contextlib.suppress(async_api.Error):  # the script may end first
        await cover.get_by_role("button").click()


async def run(page: async_api.Page, case: Mapping[str, str], parameters: Mapping[str, Any]) -> str:
    """Return the price as the page shows it, or `none` if there is none."""
    patience_ms = parameters["patience_ms"]
    closed = CLOSED_BY_A_BUTTON.get(parameters["dismiss"])
    if closed is not None:
        await page.add_locator_handler(page.locator(closed).first, close)
    await page.goto(case["url"], wait_until="domcontentloaded")
    try:
        button = page.get_by_role("button", name="Show price")
        if await button.count():
            await button.click(timeout=patience_ms)
        price = page.locator(FOUND[parameters["find_by"]], has_text=re.compile(r"\d"))
        await price.first.wait_for(state="visible", timeout=patience_ms)
        written: str = await price.first.inner_text()
        return written.strip()
    except async_api.TimeoutError:
        return "none"
