"""A stored publication, and how a message of the stream is decoded to one."""

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
    """`offset` is its offset in the stream, which identifies it."""

    offset: int
    id: str
    time: datetime
    publication: Publication
    payload: bytes

    @property
    def text(self) -> str:
        return publication_text(self.publication)

    @property
    def values(self) -> dict[str, Value]:
        """The attributes that are not variables."""
        attributes = self.publication.attributes
        return {
            name: value for name, value in attributes.items() if not isinstance(value, Variable)
        }


def decode_publication(
    content_type: str | None, headers: Mapping[str, Any], body: bytes, arrived: datetime
) -> tuple[Publication, bytes] | None:
    """The publication and its payload; None if the message is not a publication.

    The attributes are the headers whose names are valid in the language, unless the body is the
    text of a publication. A text may have a time; otherwise it is the time of arrival.
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
        name: value for name, value in attributes_from_headers(headers).items() if is_name(name)
    }
    return Publication(class_name, attributes, arrived), body


def publication_text(publication: Publication) -> str:
    """Without the time, which is stored separately."""
    return format_publication(replace(publication, time=None)).removesuffix(";")
