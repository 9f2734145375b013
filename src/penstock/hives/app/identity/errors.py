"""What can go wrong on the way to an answer about a token, beside the token itself."""

from __future__ import annotations

from penstock.hives.app.domain.errors import NothingYet


class KeysUnavailable(NothingYet):
    """The issuer's keys cannot be had just now, so no word about any token is possible."""
