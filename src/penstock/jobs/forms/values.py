"""How many values a text in JSON has, before any of them is made.

A value of two bytes becomes an object of fifty and more: the size of a text says little of what it
takes to read it.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.jobs.errors import FormError

#: A string is passed over as one, even if nothing ends it: what is in it is no value.
_SEPARATOR: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)


def check_json(data: bytes, most: int) -> None:
    """Refused if it has more values than that; whether it is JSON at all is not looked at."""
    if len(data) <= most:
        return  # a value and its separator have two bytes
    separators = 0
    for found in _SEPARATOR.finditer(data):
        separators += data[found.start()] != 0x22
        if separators > most:
            raise FormError(f"more than {most:,} values")
