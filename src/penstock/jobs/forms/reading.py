"""Any form in, one model out: what the bytes look like decides, not what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from penstock.jobs.errors import FormError
from penstock.jobs.forms import json, mime, xml
from penstock.jobs.model import Request, Response

T = TypeVar("T")


class Form(Enum):
    """How a message is written, and the content type it says that with."""

    XML = "text/xml"
    MIME = "multipart/mixed"
    JSON = "application/json"


def read_request(data: bytes) -> tuple[Request, Form]:
    """The request and how it was written, for who is asked in a form answers in it."""
    return _read(data, xml.read_request, json.read_request)


def read_response(data: bytes) -> tuple[Response, Form]:
    return _read(data, xml.read_response, json.read_response)


def _read(
    data: bytes, from_xml: Callable[[bytes, bytes], T], from_json: Callable[[bytes], T]
) -> tuple[T, Form]:
    form = sniff(data)
    if form is Form.JSON:
        return from_json(data), form
    if form is Form.XML:
        return from_xml(data, b""), form
    parts = mime.read(data)
    texts = [part.content for part in parts if part.content_type in ("text/xml", "application/xml")]
    others = [part.content for part in parts if part.content_type == "application/zip"]
    if len(texts) != 1 or len(others) > 1:
        kinds = ", ".join(part.content_type for part in parts) or "none"
        raise FormError(f"one part text/xml and at most one application/zip make it; here: {kinds}")
    return from_xml(texts[0].strip(), others[0] if others else b""), form


def sniff(data: bytes) -> Form:
    start = data.lstrip()[:2]
    if start.startswith(b"{"):
        return Form.JSON
    if start == b"--":
        return Form.MIME
    if start.startswith(b"<") or start in (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb"):
        return Form.XML
    raise FormError("neither XML (<), nor MIME (--), nor JSON ({)")
