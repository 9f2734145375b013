"""Account tokens: what Apple knows a person by, a UUID that the app passes along with a purchase.

Ours says which user it is, so that a notification names its owner without a table between.
"""

from __future__ import annotations

import uuid
from typing import Final

#: The upper half of our tokens: a version 8 UUID; the lower half is the user's id.
_OURS: Final = 0x70656E73746F8000


def account_token(user_id: int) -> uuid.UUID:
    """What an app gives Apple with a purchase, so that it comes back with every notification."""
    return uuid.UUID(int=_OURS << 64 | 0x8 << 60 | user_id)


def user_of(token: str | None) -> int | None:
    """Whose an account token is; None, if it is none of ours."""
    try:
        number = uuid.UUID(token or "").int
    except ValueError:
        return None
    lower = number & (1 << 64) - 1
    if number >> 64 != _OURS or lower >> 60 != 0x8:
        return None
    return lower & (1 << 60) - 1 or None
