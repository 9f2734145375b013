"""The account of the demonstration. In production mode it is rejected."""

from __future__ import annotations

from typing import Final

#: Manages hives of the demonstration; `demo_data.DEMO_USERS` has the other users.
LOGIN: Final = "grace@hives.example"
PASSWORD: Final = "nine green bottles"  # noqa: S105 - printed by `penstock up`
