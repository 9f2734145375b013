"""A window of days beside the window before it."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What is popular, and how tastes change, in so many days.
RECENT: Final = (1, 7, 30)
#: Windows that are compared are weeks, so that each has the same weekdays: a Saturday more would be
#: called growth.
COMPARED: Final = (7, 28)


def within(day: date, window: int) -> Column:
    """Whether a row's day is in the window that ends with this one."""
    from pyspark.sql import functions as f

    return f.col("day").between(f.lit(day - timedelta(days=window - 1)), f.lit(day))


def before(day: date, window: int) -> Column:
    """Whether it is in the window before that."""
    return within(day - timedelta(days=window), window)
