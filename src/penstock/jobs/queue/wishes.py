"""Wishes about jobs, as they travel to all workers: that one be cancelled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

_CANCEL: Final = "cancel"


@dataclass(frozen=True, slots=True)
class Wish:
    """It holds for what was asked for before it; or for that run and those before, where one is
    named."""

    cancel: str
    at: float  #: seconds since 1970
    run: int | None = None

    def holds(self, run: int, submitted: int | None) -> bool:
        if self.run is not None:
            return run <= self.run
        # Times of requests are whole seconds: of one that was asked for again, and in the same
        # second, it is taken that the wish came before.
        return run == 1 or (submitted or 0) < int(self.at)


def write_wish(wish: Wish) -> bytes:
    return json.dumps({_CANCEL: wish.cancel, "at": wish.at, "run": wish.run}).encode()


def read_wish(body: bytes) -> Wish | None:
    """Nothing, if it is not one."""
    try:
        said = json.loads(body)
        run = said.get("run")
        return Wish(str(said[_CANCEL]), float(said["at"]), None if run is None else int(run))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
