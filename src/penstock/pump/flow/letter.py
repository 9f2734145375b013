"""A message as it came, kept whole: to be sent on, tried again later, or saved to a file."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client import Message
from penstock.client.body import JSON, TEXT
from penstock.pump.errors import BadPost


@dataclass(frozen=True, slots=True)
class Letter:
    topic: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    again: bool = field(default=False, compare=False)  #: it may have been worked on before

    def content_type(self) -> str | None:
        """As it is sent again: a JSON value, a text, or bytes that are neither."""
        start = self.body[:64].lstrip()
        try:
            if start.startswith((b"{", b"[")):
                json.loads(self.body)
                return JSON
            self.body.decode()
            return TEXT
        except ValueError:
            return None


def letter_of(message: Message) -> Letter:
    return Letter(message.address, message.body, message.headers, message.redelivered)


def to_json(letter: Letter) -> str:
    given: dict[str, Any] = {"topic": letter.topic, "headers": dict(letter.headers)}
    try:
        given["body"] = letter.body.decode()
    except UnicodeDecodeError:
        given["base64"] = b64encode(letter.body).decode()
    return json.dumps(given, ensure_ascii=False, default=str)


def from_json(text: str) -> Letter:
    try:
        given = json.loads(text)
        body = b64decode(given["base64"]) if "base64" in given else given["body"].encode()
        return Letter(str(given["topic"]), body, dict(given["headers"]), again=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPost(f"{text[:80]!r} is no saved message: {error}") from None
