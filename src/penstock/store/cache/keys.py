"""Names of cached values, with the version of their form in them.

`Keys("h", 1).key("hive", 7)` is `h1:hive:7`. A release that writes another form counts the version
up: old and new processes then run side by side without reading each other's values.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

#: What memcached takes as a key; one of ours that is not so gets a digest instead.
LONGEST: Final = 250
PLAIN: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one application, in one version of its values."""

    application: str
    version: int

    def key(self, kind: str, *names: object) -> str:
        prefix = f"{self.application}{self.version}:{kind}:"
        name = ":".join(str(name) for name in names)
        whole = prefix + name
        if len(whole) <= LONGEST and PLAIN.fullmatch(whole):
            return whole
        # A tilde says so: no plain name of ours has one.
        return f"{prefix}~{hashlib.sha256(name.encode()).hexdigest()}"
