"""What an insight says, in the language of the reader: its kind and its figures, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock_hives.analytics.models import Insight
from penstock_hives.translation import format_number, translate

_CHANGE: Final = (
    "{now} visits a day in the last four weeks, {before} in the four before: {change}%."
)
_BUSIEST: Final = "{now} visits a day; half of the others have {median} or fewer."
_BEHIND: Final = (
    "{now} visits a day, where half of the other places of its type have {median} or more. "
    "A deal in its quiet hours may help."
)
_UNHEARD: Final = (
    "Its sensors sent data in {coverage}% of the opening hours of the last week. "
    "A sensor closer to a window or to the router has a better signal."
)
_PRAISED: Final = (
    "{messages} messages in the last four weeks, sentiment {sentiment} on a scale from -1 to 1."
)
_CRITICISED: Final = (
    "{messages} messages in the last four weeks, sentiment {sentiment} on a scale from -1 to 1. "
    "The latest messages say why."
)
_DEAL_WORKED: Final = (
    "{visits} visits a day while it ran, {expected} on such days before: {lift}%. Worth repeating."
)
_DEAL_FAILED: Final = (
    "{visits} visits a day while it ran, {expected} on such days before: {lift}%. "
    "Another day or another offer may do better."
)
_SHARES: Final = {"change": "+.0f", "lift": "+.0f", "coverage": ".0f"}


def insight_text(kind: str, data: Mapping[str, Any], locale: str) -> tuple[str, str]:
    """Title and body."""
    said = {name: _shown(name, value, locale) for name, value in data.items()}
    match kind:
        case "busier":
            title = translate("{hive} is busier than before", locale, **said)
            body = translate(_CHANGE, locale, **said)
        case "quieter":
            title = translate("{hive} is quieter than before", locale, **said)
            body = translate(_CHANGE, locale, **said)
        case "busiest":
            title = translate("{hive} is the busiest of {count} places of its type", locale, **said)
            body = translate(_BUSIEST, locale, **said)
        case "behind":
            title = translate("{hive} has room to grow", locale, **said)
            body = translate(_BEHIND, locale, **said)
        case "unheard":
            title = translate("{hive} had no data part of the time", locale, **said)
            body = translate(_UNHEARD, locale, **said)
        case "praised":
            title = translate("People speak well of {hive}", locale, **said)
            body = translate(_PRAISED, locale, **said)
        case "criticised":
            title = translate("People speak badly of {hive}", locale, **said)
            body = translate(_CRITICISED, locale, **said)
        case "deal_worked":
            title = translate("“{title}” brought people in", locale, **said)
            body = translate(_DEAL_WORKED, locale, **said)
        case "deal_failed":
            title = translate("“{title}” did not bring people in", locale, **said)
            body = translate(_DEAL_FAILED, locale, **said)
        case _:
            raise ValueError(f"no text for insights of kind {kind!r}")
    return title, body


def translate_insight(insight: Insight, locale: str) -> tuple[str, str]:
    """Title and body, each in one line; as stored if its figures are not known."""
    if not insight.data:
        return " ".join(insight.title.split()), " ".join(insight.body.split())
    return insight_text(insight.kind, insight.data, locale)


def _shown(name: str, value: Any, locale: str) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    if name in _SHARES:
        return format_number(100 * value, locale, _SHARES[name])
    return format_number(value, locale, "+.2f" if name == "sentiment" else ",.0f")
