"""Removes passwords and tokens from settings, log lines, errors and command lines.

A secret is the password of a URL (`amqp://ada:***@host`) or a value with a telling name
(`password=***`). The running time is linear in the text.
"""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = "***"

_NAMES: Final = r"(?:password|passwd|passphrase|secret|token|api_?key)"
_URL: Final = re.compile(r"(://[^\s/:@'\"]*):[^\s/'\"]*@")
_PAIR: Final = re.compile(rf"(?i)({_NAMES}\s?=\s?)('[^']*'|\"[^\"]*\"|[^\s&,;'\"]+)")
_NAME: Final = re.compile(rf"(?i){_NAMES}$")


def redact(text: str) -> str:
    if "@" in text:
        text = _URL.sub(rf"\1:{HIDDEN}@", text)
    if "=" in text:
        text = _PAIR.sub(rf"\1{HIDDEN}", text)
    return text


def redact_value(name: str, value: Any) -> Any:
    """The value of that name: hidden if the name denotes a secret."""
    if isinstance(value, str):
        return HIDDEN if value and _NAME.search(name) else redact(value)
    if isinstance(value, list | tuple):
        return [redact_value(name, each) for each in value]
    return value
