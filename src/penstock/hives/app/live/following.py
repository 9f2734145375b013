"""Which hives a stream follows, and from where: read from a request, within limits."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from penstock.core.units import parse_count
from penstock.hives.app.live.bulletin import Bulletin

#: Hives one stream may name; who wants more wants all.
MOST_HIVES: Final = 500


class Unreadable(ValueError):
    """Not a list of hives."""


def wanted(query: bytes) -> frozenset[int] | None:
    """`hives=1,2,3`; none: all of them."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("hives")
    if given is None:
        return None
    return hives(part for text in given for part in text.split(","))


def hives(parts: object) -> frozenset[int]:
    """Numbers of hives, spelled as text or numbers."""
    try:
        found = frozenset(int(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise Unreadable("hives should be numbers, with commas between") from None
    if len(found) > MOST_HIVES or any(not 0 < hive < 2**63 for hive in found):
        raise Unreadable(f"hives should be at most {MOST_HIVES} positive numbers")
    return found


def place(bulletin: Bulletin) -> str:
    """Where the bulletin is, for who comes back."""
    return f"{bulletin.name}-{bulletin.number}"


def number_of(told: bytes | None, bulletin: Bulletin) -> int | None:
    """The issue a client saw last, if it is one of this bulletin's."""
    name, _, number = (told or b"").decode("latin-1").partition("-")
    return parse_count(number) if name == bulletin.name else None
