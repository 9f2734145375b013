"""Passwords and tokens out of what people read: settings, log lines, errors, command lines.

The one place that knows what a secret looks like in a text: the password of a URL
(`amqp://ada:***@host`) and a value with a telling name (`password=***`). Time is in proportion to
the text, whatever is in it.
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
    """The text with the secrets in it hidden."""
    if "@" in text:
        text = _URL.sub(rf"\1:{HIDDEN}@", text)
    if "=" in text:
        text = _PAIR.sub(rf"\1{HIDDEN}", text)
    return text


def redact_value(name: str, value: Any) -> Any:
    """The value of something with that name: hidden if the name tells that it is a secret."""
    if isinstance(value, str):
        return HIDDEN if value and _NAME.search(name) else redact(value)
    if isinstance(value, list | tuple):
        return [redact_value(name, each) for each in value]
    return value
