"""A publication that was kept: what it said, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from penstock.content import LanguageError, Publication, Variable, parse_publication
from penstock.content.formatter import format_publication, is_name
from penstock.content.messages import Value, attributes_from_headers

_CONTENT_TYPE: Final = "application/x-padres"


@dataclass(frozen=True, slots=True)
class ArchivedPublication:
    """`offset` is its place in the stream, which names it for good."""

    offset: int
    id: str
    time: datetime
    publication: Publication
    payload: bytes

    @property
    def text(self) -> str:
        """What it said, without the time."""
        return publication_text(self.publication)

    @property
    def values(self) -> dict[str, Value]:
        """The attributes without variables, of which nothing is true."""
        attributes = self.publication.attributes
        return {
            name: value for name, value in attributes.items() if not isinstance(value, Variable)
        }


def decode_publication(
    content_type: str | None, headers: Mapping[str, Any], body: bytes, arrived: datetime
) -> tuple[Publication, bytes] | None:
    """What a message in the stream says, and its payload; None if it says nothing.

    Its headers are the attributes, those with a name in the language, unless its body is a
    publication's text. That may bring a time; any other publication has the one it arrived at.
    """
    if content_type == _CONTENT_TYPE:
        try:
            return parse_publication(body.decode(), lambda: arrived), b""
        except (LanguageError, UnicodeDecodeError):
            return None
    class_name = headers.get("class")
    if not isinstance(class_name, str):
        return None
    attributes = {
        name: one for name, one in attributes_from_headers(headers).items() if is_name(name)
    }
    return Publication(class_name, attributes, arrived), body


def publication_text(publication: Publication) -> str:
    """A publication in the language, without its time: that is kept beside it."""
    return format_publication(replace(publication, time=None)).removesuffix(";")
