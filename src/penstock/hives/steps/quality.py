"""What is to be known about a row of silver beside its numbers: one bit each.

A clean row has none. Bits are kept in the lake and in the database: they are never given another
meaning, and new ones come at the end.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Quality(IntFlag):
    WRAP = 1  #: a total went over its top and began at 0
    RESTART = 2  #: the device started again: its totals are all there is to count
    LOSS_POSSIBLE = 4  #: and what it had not sent by then is lost
    AMBIGUOUS = 8  #: both totals went over their tops at once, or so it looks
    DUPLICATE = 16  #: the same message once more: no delta
    LATE = 32  #: totals overtaken by later ones: no delta, but for what a restart had forgotten
    CORRUPT = 64  #: totals that cannot be: no delta, and the totals before stay what counts
    CLOCK_SUSPECT = 128  #: the device has no time that can be believed: `at` is the receipt
    FIRST = 256  #: the first totals of a sensor: there is nothing to compare them with
    CONFIRMED = 512  #: says the same as a report that was not believed, and so both are
    WRAP_ASSUMED = 1024  #: nobody knows yet where the total wrapped: up to 20 events wrong
    REORDERED = 2048  #: a byte order other than the profile's, which a start-up report has proved
    RECEIPT_DOUBTFUL = 4096  #: told a receipt when it cannot have been: the broker's stands


#: Rows that are kept for the record and count for nothing.
SET_ASIDE: Final = Quality.DUPLICATE | Quality.CORRUPT
