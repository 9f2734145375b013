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
from penstock_hives.public.page.modules import join_modules


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


def test_modules_of_the_first_view_are_one_file_and_others_import_from_it() -> None:
    joined = join_modules(
        {
            "page": 'import { b } from "./b.js";\nimport { z } from "./z.js";\nb(z);\n',
            "a": "export const a = 1;\nconst own = 2;\n",
            "b": 'import { a as one } from "./a.js";\nexport function b() { return one; }\n',
            "later": 'import { a } from "./a.js";\nimport { z } from "./z.js";\nexport { a };\n',
        }
    )
    assert joined == {
        "first": "const $a = await (async () => {\nconst a = 1;\nconst own = 2;\n"
        "return { a };\n})();\n"
        "const $b = await (async () => {\nconst { a: one } = $a;\n"
        "function b() { return one; }\nreturn { b };\n})();\n"
        "export { $a, $b };\n",
        "page": 'import { $b } from "./first.js"; const { b } = $b;\n'
        'import { z } from "./z.js";\nb(z);\n',
        "later": 'import { $a } from "./first.js"; const { a } = $a;\n'
        'import { z } from "./z.js";\nexport { a };\n',
    }


@pytest.mark.parametrize("line", ["export { a };", "export let a = 1;", 'import "./b.js";'])
def test_a_module_of_the_first_view_exports_names_as_they_are_declared(line: str) -> None:
    with pytest.raises(ValueError, match="is not an import or export of a name"):
        join_modules({"page": 'import { a } from "./a.js";', "a": line})


def test_every_module_that_is_asked_for_is_served_once() -> None:
    contents = read_contents()
    html = contents["/index.html"].decode()
    asked = set(
        re.findall(r'(?:rel="modulepreload" href|script type="module" src)="([^"]+)"', html)
    )
    assert asked == {"/first.js", "/page.js"}
    modules = {path for path in contents if re.fullmatch(r"/\w+\.js", path)}
    for path in modules - {"/leaflet.js"}:
        found = re.findall(r'(?:from |import\()"\.(/\w+\.js)"', contents[path].decode())
        asked.update(found)
    assert asked == modules
    kept = re.findall(r'"(/\w+\.js)"', contents["/service-worker.js"].decode())
    assert {"/first.js", "/page.js", "/place.js"} <= set(kept) <= modules
