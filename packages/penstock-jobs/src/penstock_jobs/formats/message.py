"""Reads requests and responses in any format, detected from the bytes, and writes them.

XML cannot carry binary data, so a message with models, or of a type that may have models, is sent
as MIME, which the Ichnaea clients expect. They expect predictions as bare XML, labelled as MIME.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import json, mime, xml
from penstock_jobs.model import JobRequest, JobResponse, PredictModels

T = TypeVar("T")


class MessageFormat(Enum):
    XML = "text/xml"
    MIME = "multipart/mixed"
    JSON = "application/json"


def read_request(data: bytes) -> tuple[JobRequest, MessageFormat]:
    """The request and its format, in which the response is written."""
    return _read(data, xml.read_request, json.read_request)


def read_response(data: bytes) -> tuple[JobResponse, MessageFormat]:
    return _read(data, xml.read_response, json.read_response)


def _read(
    data: bytes, from_xml: Callable[[bytes, bytes], T], from_json: Callable[[bytes], T]
) -> tuple[T, MessageFormat]:
    form = detect_format(data)
    if form is MessageFormat.JSON:
        return from_json(data), form
    if form is MessageFormat.XML:
        return from_xml(data, b""), form
    parts = mime.read(data)
    texts = [part.content for part in parts if part.content_type in ("text/xml", "application/xml")]
    others = [part.content for part in parts if part.content_type == "application/zip"]
    if len(texts) != 1 or len(others) > 1:
        kinds = ", ".join(part.content_type for part in parts) or "none"
        raise JobFormatError(
            f"expected one part text/xml and at most one application/zip; got: {kinds}"
        )
    return from_xml(texts[0].strip(), others[0] if others else b""), form


def detect_format(data: bytes) -> MessageFormat:
    start = data.lstrip()[:2]
    if start.startswith(b"{"):
        return MessageFormat.JSON
    if start == b"--":
        return MessageFormat.MIME
    if start.startswith(b"<") or start in (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb"):
        return MessageFormat.XML
    raise JobFormatError("the message is neither XML (<), MIME (--) nor JSON ({)")


ZIP: Final = "application/zip"


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    body: bytes
    content_type: str


def write_request(request: JobRequest, form: MessageFormat = MessageFormat.JSON) -> EncodedMessage:
    if form is MessageFormat.JSON:
        return EncodedMessage(json.write_request(request), form.value)
    text = xml.write_request(request)
    if isinstance(request, PredictModels):
        return _write_parts(text, request.models)
    return EncodedMessage(text, MessageFormat.XML.value)


def write_response(
    response: JobResponse, form: MessageFormat = MessageFormat.JSON
) -> EncodedMessage:
    if form is MessageFormat.JSON:
        return EncodedMessage(json.write_response(response), form.value)
    text = xml.write_response(response)
    if response.type == "build_models":
        return _write_parts(text, response.models)
    if response.type == "predict_models":
        return EncodedMessage(text, MessageFormat.MIME.value)
    return EncodedMessage(text, MessageFormat.XML.value)


def _write_parts(text: bytes, models: bytes) -> EncodedMessage:
    parts = [mime.MimePart(MessageFormat.XML.value, text)]
    if models:
        parts.append(mime.MimePart(ZIP, models))
    return EncodedMessage(mime.write(parts), MessageFormat.MIME.value)
