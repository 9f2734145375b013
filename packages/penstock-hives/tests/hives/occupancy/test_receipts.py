"""When a message was received: by the broker, or by its sender within bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from penstock_hives.occupancy.decoder import (
    DOUBTFUL,
    MAX_AHEAD,
    MAX_BEHIND,
    resolve_receipt_times,
)
from penstock_hives.occupancy.schemas import Quality

KEPT = datetime(2026, 3, 5, tzinfo=UTC)
HEADERS = pa.map_(pa.string(), pa.string())


def messages(*told: object) -> pa.Table:
    """One for each time that is told, kept by the broker at the same moment."""
    headers = [None if each is None else [("x-received-at", str(each))] for each in told]
    columns = {
        "timestamp": pa.array([KEPT] * len(told), pa.timestamp("us", "UTC")),
        "headers": pa.array(headers, HEADERS),
    }
    return pa.table(columns)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def test_a_message_may_say_when_it_was_received() -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)

    found = resolve_receipt_times(messages(ms(noon), "yesterday", None, -5, ""))

    assert found["timestamp"].to_pylist() == [noon, KEPT, KEPT, KEPT, KEPT]
    assert DOUBTFUL not in found.schema.names


def test_nothing_was_received_in_the_future_or_years_ago() -> None:
    moment = timedelta(milliseconds=1)
    bounds = (
        KEPT + MAX_AHEAD,
        KEPT - MAX_BEHIND,
        KEPT + MAX_AHEAD + moment,
        KEPT - MAX_BEHIND - moment,
    )

    found = resolve_receipt_times(messages(*map(ms, bounds), 0, 10**15 - 1))

    assert found["timestamp"].to_pylist() == [*bounds[:2], *[KEPT] * 4]
    assert found[DOUBTFUL].to_pylist() == [False, False, True, True, True, True]


def test_messages_without_headers_are_as_they_were() -> None:
    plain = messages(None).drop_columns(["headers"])

    assert resolve_receipt_times(plain) is plain


def test_the_quality_of_a_doubtful_receipt_is_a_bit_of_its_own() -> None:
    others = sum(each for each in Quality if each is not Quality.RECEIPT_DOUBTFUL)

    assert not others & Quality.RECEIPT_DOUBTFUL
