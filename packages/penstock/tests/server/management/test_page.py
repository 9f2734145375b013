from __future__ import annotations

import re

import httpx

from penstock.server import Broker


async def test_the_page_is_whole_in_itself(served: Broker) -> None:
    async with httpx.AsyncClient(base_url=served.addresses[1], timeout=60) as browser:
        answer = await browser.get("/")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.findall(r"https?://|@import|<script src|url\(", answer.text)
    assert "innerHTML" not in answer.text  # names are the clients' to choose
