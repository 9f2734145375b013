"""Bodies as programs have them, and as they travel.

Bytes travel as they are, a text as UTF-8 `text/plain`, anything else as `application/json`. A
receiver need not know which: `Message.body`, `.text` and `.json()` read any of them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.errors import PreconditionFailed

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

#: Bytes, a text, or whatever `json.dumps` takes.
Body = Any


def encode_body(body: Body) -> tuple[bytes, str | None]:
    """The bytes to send and the content type that says how to read them."""
    if isinstance(body, bytes):
        return body, None
    if isinstance(body, bytearray | memoryview):
        return bytes(body), None
    if isinstance(body, str):
        return body.encode(), TEXT
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise PreconditionFailed(f"a body is bytes, a text or JSON: {error}") from error
    return text.encode(), JSON
