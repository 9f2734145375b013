"""The public page: HTML, modules, style sheets and texts, served from memory, without a build.

Apple sends people back from its sign-in with a form (`response_mode=form_post`), which a page
cannot read. Its fields become the query of the page, as Google sends them.

Browsers revalidate the files at each visit and get a 304 while they are unchanged. Leaflet, for the
map, comes from the wheel of NiceGUI.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from penstock_hives.encoding import encode_json
from penstock_hives.public.page.modules import join_modules
from penstock_hives.public.view import CachedPage
from penstock_hives.server.asgi import (
    AsgiApplication,
    Headers,
    Receive,
    Scope,
    Send,
    get_header,
    send_problem,
    send_response,
)

_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".json": b"application/json",
    ".webmanifest": b"application/manifest+json",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
}
#: The service worker is no module.
_MODULE: Final = re.compile(r"/\w+\.js")
#: Files of Leaflet in the wheel of NiceGUI.
_LEAFLET: Final = {
    "/leaflet.js": "elements/leaflet/dist/index.js",
    "/leaflet.css": "elements/leaflet/dist/leaflet/leaflet.css",
}
INDEX: Final = "/index.html"
#: Of Apple's answer to a sign-in; the first time it has the name of the user.
_FORM_FIELDS: Final = frozenset({"code", "state", "id_token", "user", "error"})
_MAX_FORM: Final = 16 * 1024
#: What the page reads of the settings of the installation.
SETTINGS: Final = "/page.json"


def read_contents(settings: dict[str, Any] | None = None) -> dict[str, bytes]:
    """By path. `settings` are public: the page reads them."""
    folder = Path(str(files(__package__)))
    found = {
        f"/{each.relative_to(folder).as_posix()}": each.read_bytes()
        for each in folder.rglob("*")
        if each.suffix in _TYPES
    }
    modules = {path: content for path, content in found.items() if _MODULE.fullmatch(path)}
    joined = join_modules({path[1:-3]: text.decode() for path, text in modules.items()})
    found = {path: content for path, content in found.items() if path not in modules}
    found |= {f"/{name}.js": text.encode() for name, text in joined.items()}
    found |= {path: (_nicegui() / file).read_bytes() for path, file in _LEAFLET.items()}
    found[SETTINGS] = encode_json(settings or {})
    return found


def cached_files(contents: dict[str, bytes], index_headers: Headers = ()) -> dict[str, CachedPage]:
    made = datetime.now(UTC)
    return {
        path: CachedPage(
            content,
            made,
            content_type=_TYPES[Path(path).suffix],
            caching=b"no-cache",
            more=index_headers if path == INDEX else (),
        )
        for path, content in contents.items()
    }


def _nicegui() -> Path:
    spec = find_spec("nicegui")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def security_headers(
    settings: dict[str, Any], script_hash: str, style_hash: str
) -> list[tuple[bytes, bytes]]:
    """No other inline scripts and styles, no other origins but those of tiles and of the issuer."""
    tiles = " " + _origin(settings["tiles"]) if settings.get("tiles") else ""
    issuer = "".join(f" {_origin(url)}" for url in settings.get("firebase", {}).get("urls", ()))
    policy = (
        f"default-src 'none'; script-src 'self' {script_hash}; "
        f"style-src 'self' {style_hash}; img-src 'self' data:{tiles}; "
        f"connect-src 'self'{issuer}; manifest-src 'self'; worker-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    return [
        (b"content-security-policy", policy.encode("latin-1")),
        (b"referrer-policy", b"same-origin"),
        (b"permissions-policy", b"geolocation=(self), camera=(), microphone=()"),
    ]


def _origin(url: str) -> str:
    """Of a URL; of a template of tiles with {s}, all of its subdomains."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.replace('{s}', '*')}"


def static_files(pages: dict[str, CachedPage], *, signs_in: bool = False) -> AsgiApplication:
    """`signs_in`: accept forms of Apple's sign-in."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        found = pages.get(scope["path"])
        if found is None:
            await send_problem(send, 404, "page not found")
        elif scope["method"] == "POST" and scope["path"] == INDEX and signs_in:
            await _return_from_sign_in(receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await send_problem(send, 405, "use GET or HEAD", [(b"allow", b"GET, HEAD")])
        else:
            zipped = b"gzip" in (get_header(scope, b"accept-encoding") or b"")
            await found.send(send, get_header(scope, b"if-none-match"), zipped)

    return application


async def _return_from_sign_in(receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > _MAX_FORM:
            await send_problem(send, 413, f"a form may have at most {_MAX_FORM:,} bytes")
            return
    given = parse_qsl(body.decode("latin-1"), keep_blank_values=True)
    fields = {name: value for name, value in given if name in _FORM_FIELDS}
    if "state" not in fields or not fields.keys() & {"code", "error"}:
        await send_problem(send, 422, "state, and code or error must be given")
        return
    # Without the form: a reload must not send it again.
    target = f"/?{urlencode(fields)}".encode()
    await send_response(send, 303, [(b"location", target), (b"cache-control", b"no-store")])
