"""A publication that was kept: what it said, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.content import LanguageError, Publication, Variable, parse_publication
from penstock.content.values import Value, is_number

_CONTENT_TYPE: Final = "application/x-padres"


@dataclass(frozen=True, slots=True)
class Kept:
    """`offset` is its place in the stream, which names it for good."""

    offset: int
    id: str
    time: datetime
    publication: Publication
    payload: bytes

    @property
    def values(self) -> dict[str, Value]:
        """The attributes without variables, of which nothing is true."""
        attributes = self.publication.attributes
        return {
            name: value for name, value in attributes.items() if not isinstance(value, Variable)
        }


def publication_of(
    content_type: str | None, headers: Mapping[str, Any], body: bytes
) -> tuple[Publication, bytes] | None:
    """What a message in the stream says, and its payload; None if it says nothing.

    Its headers are the attributes, unless its body is a publication's text.
    """
    if content_type == _CONTENT_TYPE:
        try:
            return parse_publication(body.decode()), b""
        except (LanguageError, UnicodeDecodeError):
            return None
    class_name = headers.get("class")
    if not isinstance(class_name, str):
        return None
    attributes: dict[str, Any] = {}
    for name, value in headers.items():
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str) or is_number(value):
            attributes[name] = value
        elif isinstance(value, datetime):
            attributes[name] = int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
    del attributes["class"]
    attributes.pop("tid", None)  # the tree it came by says nothing of it
    return Publication(class_name, attributes), body
