"""The description as a page that is whole by itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from penstock_hives.api.openapi import render_docs
from tests.hives.app.world import World

#: Elements that have no end.
_VOID = {"meta"}
#: Those whose end may be left out.
_OPEN = {"td", "tr"}


class Read(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.elements: set[str] = set()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.add(tag)
        self.names.add(given.get("id") or "")
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag not in _VOID | _OPEN:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _OPEN:
            assert self._open.pop() == tag


async def test_the_description_is_a_page(world: World) -> None:
    answer = await world.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    read = Read()
    read.feed(answer.text)
    document = (await world.get("/openapi.json")).json()
    for path, verbs in document["paths"].items():
        assert f"<code>{path}</code>" in answer.text
        for operation in verbs.values():
            assert operation["operationId"] in read.names
    for shape in document["components"]["schemas"]:
        assert f"shape-{shape}" in read.names


async def test_it_needs_nothing_from_elsewhere(world: World) -> None:
    answer = await world.get("/docs")
    read = Read()
    read.feed(answer.text)
    assert not read.elements & {"script", "link", "img", "iframe"}
    assert not re.search(r"url\(|@import", answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for link in read.links:
        assert link == "openapi.json" or link.removeprefix("#") in read.names


def test_what_is_described_is_never_taken_for_html() -> None:
    text = "<script>alert(1)</script>"
    call = {"operationId": text, "summary": text, "description": text, "responses": {}}
    info = {"title": text, "version": text, "description": text}
    page = render_docs({"openapi": "3.1.0", "info": info, "paths": {f"/{text}": {"get": call}}})
    assert "<script" not in page
    assert "&lt;script&gt;" in page
