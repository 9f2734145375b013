"""When a day will be busiest: a window, not an hour.

The busiest hour itself is hit two times in three at best, and an hour beside it is as good to
whoever plans by it. So a window is told: the hours around the busiest that come near it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.hives.forecast.grid import Floats

#: An hour that comes so near to the busiest belongs to it.
_NEAR: Final = 0.9
_SHORTEST: Final = 3
#: A window longer than this says nothing.
_LONGEST: Final = 5


def window(hours: Floats) -> tuple[int, int] | None:
    """From which place to before which; none for a day on which nobody is expected."""
    known = np.nan_to_num(hours, nan=-1.0)
    top = int(known.argmax()) if known.size else 0
    if not known.size or known[top] <= 0:
        return None
    first, last = top, top
    while last - first + 1 < min(_LONGEST, known.size):
        before = known[first - 1] if first > 0 else -1.0
        after = known[last + 1] if last + 1 < known.size else -1.0
        near = max(before, after) >= _NEAR * known[top]
        if not near and last - first + 1 >= _SHORTEST:
            break
        if before > after:
            first -= 1
        else:
            last += 1
    return first, last + 1
