"""What somebody is told, in words."""

from __future__ import annotations

from penstock.hives.app.alerts.definitions import Definition, Kind, Unit
from penstock.hives.app.alerts.publications import DealNews, Figure


def of_crossing(definition: Definition, figure: Figure, hive: str) -> tuple[str, str]:
    """Title and body."""
    assert definition.threshold is not None
    if definition.unit is Unit.PERCENT:
        now = f"It is {figure.percent:.0f} % full now"
        limit = f"{definition.threshold:g} %"
    else:
        now = f"There {_people(figure.occupancy)} inside now"
        limit = f"{definition.threshold:g}"
    if definition.kind is Kind.OCCUPANCY_ABOVE:
        return f"{hive} is filling up", f"{now}; you wanted to know at {limit}."
    return f"{hive} has room", f"{now}; you wanted to know at {limit}."


def of_deal(news: DealNews) -> tuple[str, str]:
    if news.hours is None:
        return f"New at {news.hive}", news.title
    left = "1 hour" if news.hours == 1 else f"{news.hours} hours"
    return f"Ends soon at {news.hive}", f"{news.title}: {left} left."


def _people(count: int) -> str:
    return "is 1 person" if count == 1 else f"are {count} people"
