"""Messages of several parts, as the Ichnaea clients write them: the XML, and a zip in base64.

Their content type names no boundary, so it is taken from the first line of the message. Truncated
messages are refused.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
import secrets
from dataclasses import dataclass
from typing import Final

from penstock_jobs.errors import JobFormatError

#: RFC 2046, 5.1.1.
_BOUNDARY: Final = re.compile(
    rb"--([0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?])[ \t]*\r?\n"
)
#: Characters per line of base64.
_LINE: Final = 76
_HEAD_END: Final = re.compile(rb"\r?\n(?:\r?\n|\Z)")
_BLANKS: Final = b" \t\r\n\v\f"
MAX_PARTS: Final = 16
MAX_HEAD_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class MimePart:
    content_type: str
    content: bytes


def read(data: bytes) -> list[MimePart]:
    data = data.lstrip()
    opening = _BOUNDARY.match(data)
    if opening is None:
        raise JobFormatError("the first line is not a boundary (two hyphens and a name)")
    delimiter = re.compile(rb"(?:^|\r?\n)--" + re.escape(opening[1]) + rb"(--)?[ \t]*(?=\r?\n|$)")
    parts: list[MimePart] = []
    start = None
    for line in delimiter.finditer(data):
        if start is not None:
            parts.append(_part(data[start : line.start()], len(parts) + 1))
        if line[1]:
            return parts
        if len(parts) == MAX_PARTS:
            raise JobFormatError(f"more than {MAX_PARTS} parts")
        start = line.end()
    raise JobFormatError(f"the final boundary --{opening[1].decode()}-- is missing")


def _part(data: bytes, number: int) -> MimePart:
    """Parse the text between two boundaries."""
    text = data.removeprefix(b"\r\n").removeprefix(b"\n")
    if text.startswith((b"\r\n", b"\n")):
        head, content = b"", text.removeprefix(b"\r\n").removeprefix(b"\n")
    else:
        found = _HEAD_END.search(text, 0, MAX_HEAD_BYTES)
        if found is None:
            raise JobFormatError(
                f"part {number}: no end of the headers within {MAX_HEAD_BYTES:,} bytes"
            )
        head, content = text[: found.start()], text[found.end() :]
    headers = _headers(head, number)
    kind = headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    return MimePart(kind, _decoded(content, headers.get("content-transfer-encoding", ""), number))


def _headers(head: bytes, number: int) -> dict[str, str]:
    headers: dict[str, str] = {}
    unfolded = re.sub(rb"\r?\n[ \t]+", b" ", head)
    for line in unfolded.splitlines():
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise JobFormatError(f"part {number}: {line!r} is not a header")
        headers[name.strip().lower()] = value.strip()
    return headers


def _decoded(content: bytes, encoding: str, number: int) -> bytes:
    encoding = encoding.lower()
    if encoding == "base64":
        try:
            return base64.b64decode(content.translate(None, _BLANKS), validate=True)
        except binascii.Error as error:
            raise JobFormatError(f"part {number}: not base64: {error}") from error
    if encoding == "quoted-printable":
        return quopri.decodestring(content)
    if encoding in ("", "7bit", "8bit", "binary"):
        return content
    raise JobFormatError(f"part {number}: unknown transfer encoding {encoding!r}")


def write(parts: list[MimePart]) -> bytes:
    """Text parts as they are, all others in base64."""
    boundary = f"=_Part_{secrets.token_hex(12)}".encode()
    pieces: list[bytes] = []
    for part in parts:
        pieces += [b"--", boundary, b"\r\nContent-Type: ", part.content_type.encode()]
        if part.content_type.startswith("text/"):
            pieces += [b"\r\n\r\n", part.content, b"\r\n"]
        else:
            pieces.append(b"\r\nContent-Transfer-Encoding: base64\r\n\r\n")
            encoded = base64.b64encode(part.content) or b"\r\n"
            pieces += [encoded[at : at + _LINE] + b"\r\n" for at in range(0, len(encoded), _LINE)]
    return b"".join([*pieces, b"--", boundary, b"--\r\n"])
