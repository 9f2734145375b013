"""What stands out, in words: sentences a person who runs a place can act on.

A rule looks at the figures of one hive and says something or nothing. Each has a weight, so that
the strongest comes first, and the figures it was made from. Small numbers say nothing: a café with
three visits more is not busier.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

Figures = Mapping[str, Any]

#: Of the visits a day.
CHANGE: Final = 0.15
#: Visits a day below which no change is one.
FEW: Final = 10.0
LIFT: Final = 0.10
COVERED: Final = 0.8
MESSAGES: Final = 3
MOOD: Final = 0.2


@dataclass(frozen=True, slots=True)
class Insight:
    kind: str
    title: str
    body: str
    weight: float
    data: Mapping[str, Any]


def change(figures: Figures) -> Insight | None:
    now, before = figures["visits_now"], figures["visits_before"]
    if now is None or before is None or max(now, before) < FEW or not before:
        return None
    by = (now - before) / before
    if abs(by) < CHANGE:
        return None
    kind = "busier" if by > 0 else "quieter"
    return Insight(
        kind,
        f"{figures['hive']} is {kind} than before",
        f"{now:.0f} visits a day in the last four weeks, {before:.0f} in the four before: "
        f"{by:+.0%}.",
        min(abs(by), 2.0),
        {"now": now, "before": before, "change": by},
    )


def standing(figures: Figures) -> Insight | None:
    """Beside others of its type: worth a word at the top, and far below the middle."""
    now, peers, middle = figures["visits_now"], figures["peers"], figures["peer_visits"]
    if now is None or not peers or peers < MESSAGES or not middle or max(now, middle) < FEW:
        return None
    kind = figures["hive_type"]
    if figures["rank"] == 1:
        title = f"{figures['hive']} is the busiest {kind} of {peers + 1}"
        body = f"{now:.0f} visits a day; half of the others have {middle:.0f} or fewer."
        return Insight("busiest", title, body, 0.5, {"now": now, "median": middle})
    if now < middle / 2:
        title = f"{figures['hive']} has room to grow"
        body = (
            f"{now:.0f} visits a day, where half of the other places of type {kind} have "
            f"{middle:.0f} or more. A deal in its quiet hours may help."
        )
        return Insight("behind", title, body, 0.4, {"now": now, "median": middle})
    return None


def hearing(figures: Figures) -> Insight | None:
    coverage = figures["coverage"]
    if coverage is None or coverage >= COVERED:
        return None
    return Insight(
        "unheard",
        f"{figures['hive']} was not heard of all the time",
        f"Its sensors were heard of in {coverage:.0%} of the opening hours of the last week. "
        "A sensor nearer to a window, or to the router, is heard better.",
        1.0 - coverage,
        {"coverage": coverage},
    )


def mood(figures: Figures) -> Insight | None:
    messages, sentiment = figures["feedback"], figures["sentiment"]
    if not messages or messages < MESSAGES or sentiment is None or abs(sentiment) < MOOD:
        return None
    good = sentiment > 0
    said = "well" if good else "badly"
    advice = "" if good else " The latest messages say why."
    return Insight(
        "praised" if good else "criticised",
        f"People speak {said} of {figures['hive']}",
        f"{messages} messages in the last four weeks, sentiment {sentiment:+.2f} on a scale from "
        f"-1 to 1.{advice}",
        abs(sentiment),
        {"messages": messages, "sentiment": sentiment},
    )


def deal(figures: Figures) -> Insight | None:
    lift, title = figures["lift"], figures["deal"]
    if lift is None or abs(lift) < LIFT or (figures["deal_expected"] or 0) < FEW:
        return None
    data = {"deal": figures["deal_id"], "lift": lift}
    visits, expected = figures["deal_visits"], figures["deal_expected"]
    counted = f"{visits:.0f} visits a day while it ran, {expected:.0f} on such days before"
    if lift > 0:
        body = f"{counted}: {lift:+.0%}. Worth repeating."
        return Insight("deal_worked", f"“{title}” brought people in", body, min(lift, 2.0), data)
    body = f"{counted}: {lift:+.0%}. Another day or another offer may do better."
    return Insight("deal_failed", f"“{title}” brought nobody in", body, -lift, data)


RULES: Final[tuple[Callable[[Figures], Insight | None], ...]] = (
    change,
    standing,
    hearing,
    mood,
    deal,
)

ROWS: Final = pa.schema(
    [
        ("account_id", pa.int64()),
        ("hive_id", pa.int64()),
        ("kind", pa.string()),
        ("title", pa.string()),
        ("body", pa.string()),
        ("weight", pa.float32()),
        ("data", pa.string()),
    ]
)


def of_hive(
    figures: Figures, rules: Iterable[Callable[[Figures], Insight | None]] = RULES
) -> list[Insight]:
    return [found for rule in rules if (found := rule(figures)) is not None]


def worded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does: figures of hives in, `ROWS` out."""
    for batch in batches:
        rows = [
            {
                "account_id": figures["account_id"],
                "hive_id": figures["hive_id"],
                "kind": found.kind,
                "title": found.title,
                "body": found.body,
                "weight": found.weight,
                "data": json.dumps(found.data),
            }
            for figures in batch.to_pylist()
            for found in of_hive(figures)
        ]
        yield from pa.Table.from_pylist(rows, ROWS).to_batches()
