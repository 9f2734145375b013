"""`/docs`: the documentation site, as `make docs` built it.

A wheel has it in the folder `site` of the package; in a repository it is in `build/site`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

import penstock
from penstock.core.errors import NotFound
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import HttpResponse

#: Folders below `/docs` that a page can be in.
MAX_DEPTH: Final = 4
_INLINE_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_NOT_BUILT: Final = "the documentation is not built here: run `make docs` in the repository"


@cache
def site_folder() -> Path | None:
    package = Path(penstock.__file__).parent
    for folder in (package / "site", package.parents[3] / "build" / "site"):
        if (folder / "index.html").is_file():
            return folder
    return None


async def show_page(call: ApiCall) -> HttpResponse:
    """A page or file of the documentation."""
    import mimetypes

    folder = site_folder()
    if folder is None:
        raise NotFound(_NOT_BUILT)
    path = folder.joinpath(*call.names.values()).resolve()
    if not path.is_relative_to(folder):
        raise NotFound("Not Found")
    if path.is_dir():
        if not call.request.path.endswith("/"):
            return HttpResponse(301, b"", {"location": f"{call.request.path}/"})
        path /= "index.html"
    if not path.is_file():
        raise NotFound("Not Found")
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return HttpResponse(200, content, _headers(kind, content))


def _headers(kind: str, content: bytes) -> dict[str, str]:
    """Scripts that are part of a page are allowed by their hash."""
    scripts = ["'self'"]
    if kind == "text/html":
        for script in _INLINE_SCRIPT.findall(content):
            digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
            scripts.append(f"'sha256-{digest}'")
    return {
        "content-type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        "cache-control": "max-age=300",
        "content-security-policy": (
            f"default-src 'none'; script-src {' '.join(scripts)}; "
            "style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }


routes: Final = tuple(
    ApiRoute(
        "GET",
        "/docs" + "".join(f"/{{part{number}}}" for number in range(depth)),
        show_page,
        AccessLevel.ANYONE,
    )
    for depth in range(MAX_DEPTH + 1)
)
