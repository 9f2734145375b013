"""How many requests to take at a time, by how long jobs take.

To begin with as many as there are places: what one worker holds back another cannot do. When jobs
are seen to be over in a moment, more, because then asking for each would take longer than doing it;
and as long as most stay short, twice as many again, up to about what is done in a tenth of a
second. As soon as one takes long, no more than there are places again.
"""

from __future__ import annotations

from typing import Final

#: Jobs that are over sooner than this can be taken many at a time…
_SHORT_SECONDS: Final = 0.002
#: … after so many of them, one after the other.
_SEEN: Final = 32
#: Of what is taken ahead: about so much work for each place, and so many jobs.
_AHEAD_SECONDS: Final = 0.1
_FEWEST: Final = 64
_MOST: Final = 1024


class Gait:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._pace = slots  # what the carrier was told
        self._short = 0  # one after the other
        self._done = 0  # since the last change
        self._mean = 0.0  # of the short ones, in seconds
        self._ahead = 0  # for each place, while brisk
        self.brisk = False

    def room(self, ahead: bool) -> int:
        """How many may be begun, of a kind that can or cannot be given some ahead."""
        return self._slots * self._ahead if self.brisk and ahead else self._slots

    def took(self, seconds: float) -> None:
        self._short = self._short + 1 if seconds < _SHORT_SECONDS else 0
        self._done += 1
        self._mean += (seconds - self._mean) / _SEEN

    def change(self, running: int) -> int | None:
        """The pace to tell the carrier, if it is another now that one has ended."""
        if not self.brisk:
            if self._short >= _SEEN:
                self.brisk = True
                return self._take_ahead(_FEWEST)
        elif self._done >= self._pace and self._ahead < self._most:
            return self._take_ahead(min(2 * self._ahead, self._most))
        if self._pace == 0 and running < self._slots:
            return self._set(self._slots)
        return None

    def slow(self) -> int | None:
        """One takes long: the pace to tell the carrier, if it is another."""
        self._short = 0
        if not self.brisk:
            return None
        self.brisk = False
        return self._set(self._slots)

    def pause(self) -> int:
        return self._set(0)

    @property
    def _most(self) -> int:
        wanted = int(_AHEAD_SECONDS / max(self._mean, 1e-6))
        return min(max(wanted, _FEWEST), _MOST)

    def _take_ahead(self, jobs: int) -> int:
        self._done = 0
        self._ahead = jobs
        return self._set(self._slots * jobs)

    def _set(self, pace: int) -> int:
        self._pace = pace
        return pace
