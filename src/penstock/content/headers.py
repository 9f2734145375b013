"""Headers of a message as the attributes of a publication.

Those whose values the language knows: texts and numbers as they are, what is true or false as a
text, decimals as numbers, times as seconds since 1970. The class is among the headers, and not
among the attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from penstock.content.values import Value, is_number


def attributes_of(headers: Mapping[str, Any]) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for name, value in headers.items():
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str) or is_number(value):
            attributes[name] = value
        elif isinstance(value, Decimal):
            attributes[name] = float(value)
        elif isinstance(value, datetime):
            attributes[name] = int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
    attributes.pop("class", None)
    return attributes
