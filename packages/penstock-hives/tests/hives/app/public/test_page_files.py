"""What the page is installed with, and what it may load from elsewhere."""

from __future__ import annotations

import io
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from penstock_hives.public.page import SETTINGS, read_contents, security_headers


def policy(settings: dict[str, Any]) -> str:
    headers = dict(security_headers(settings, "'sha256-a'", "'sha256-b'"))
    return headers[b"content-security-policy"].decode()


def test_the_manifest_makes_the_page_installable() -> None:
    """A name, a start, a window of its own, and icons of the sizes that browsers ask for."""
    contents = read_contents()
    manifest = json.loads(contents["/manifest.webmanifest"])
    assert b'rel="manifest"' in contents["/index.html"]
    assert (manifest["name"], manifest["start_url"]) == ("Hives", "/")
    assert manifest["display"] == "standalone"
    pictures = [each for each in manifest["icons"] if each["type"] == "image/png"]
    assert {each["sizes"] for each in pictures} == {"192x192", "512x512"}
    for each in pictures:
        width, height = Image.open(io.BytesIO(contents[each["src"]])).size
        assert f"{width}x{height}" == each["sizes"]
    assert b'addEventListener("fetch"' in contents["/service-worker.js"]


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://tiles.example/{z}/{x}/{y}.png", "https://tiles.example"),
        ("https://{s}.tiles.example/{z}/{x}/{y}.png", "https://*.tiles.example"),
    ],
)
def test_tiles_come_from_the_address_of_the_setting_and_no_other(url: str, origin: str) -> None:
    settings = {"tiles": url, "attribution": "© Example"}
    assert json.loads(read_contents(settings)[SETTINGS])["tiles"] == url
    assert f"img-src 'self' data: {origin};" in policy(settings)
    assert "img-src 'self' data:;" in policy({"tiles": None})


def test_without_tiles_the_map_has_the_shipped_outlines() -> None:
    world = json.loads(read_contents()["/world.json"])
    assert world
    assert b"world.json" in read_contents()["/map.js"]


def test_no_page_makes_html_of_a_text() -> None:
    """But for the attribution of a map, which is made from an element with the text."""
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|v-html|ui\.(html|markdown)\("
    package = Path(str(files("penstock_hives")))
    sources = [each for end in ("js", "py", "html") for each in package.rglob(f"*.{end}")]
    assert len(sources) > 200
    found = [each.name for each in sources if re.search(ways, each.read_text())]
    assert found == ["map.js"]
