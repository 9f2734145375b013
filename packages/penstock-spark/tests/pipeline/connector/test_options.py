"""What options may say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.core.errors import ConfigurationError
from penstock_spark.connector.options import (
    EARLIEST,
    LATEST,
    OffsetKind,
    OffsetSpec,
    OffsetSpecs,
    parse_offset_specs,
    read_options,
    write_options,
)

GIVEN = {"url": "amqp://ada:pa55@host", "streams": "sensors"}
MOMENT = int(datetime(2026, 1, 31, 8, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", OffsetSpecs(EARLIEST)),
        (" latest ", OffsetSpecs(LATEST)),
        ("2026-01-31T08:00:00Z", OffsetSpecs(OffsetSpec(OffsetKind.MOMENT, MOMENT))),
        ("2026-01-31T09:00:00+01:00", OffsetSpecs(OffsetSpec(OffsetKind.MOMENT, MOMENT))),
        ("2026-01-31 08:00", OffsetSpecs(OffsetSpec(OffsetKind.MOMENT, MOMENT))),
        (str(MOMENT), OffsetSpecs(OffsetSpec(OffsetKind.MOMENT, MOMENT))),
        ('{"a": 7}', OffsetSpecs(EARLIEST, {"a": OffsetSpec(OffsetKind.OFFSET, 7)})),
        ('{"a": -1, "b": -2}', OffsetSpecs(EARLIEST, {"a": LATEST, "b": EARLIEST})),
        ('{"a": "latest"}', OffsetSpecs(EARLIEST, {"a": LATEST})),
    ],
)
def test_where_to_begin(text: str, expected: OffsetSpecs) -> None:
    assert parse_offset_specs(text, "startingOffsets", EARLIEST) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingTimestamp": str(MOMENT)}, OffsetSpecs(OffsetSpec(OffsetKind.MOMENT, MOMENT))),
        (
            {"startingTimestamp": "2026-01-31T08:00:00Z"},
            OffsetSpecs(OffsetSpec(OffsetKind.MOMENT, MOMENT)),
        ),
        (
            {"startingOffsetsByTimestamp": f'{{"a": {MOMENT}, "b": "2026-01-31T08:00"}}'},
            OffsetSpecs(EARLIEST, dict.fromkeys("ab", OffsetSpec(OffsetKind.MOMENT, MOMENT))),
        ),
    ],
)
def test_a_time_to_begin_at(given: dict[str, str], expected: OffsetSpecs) -> None:
    assert read_options(GIVEN | given, streaming=True).starting == expected


def test_a_time_to_end_at() -> None:
    given = {"endingOffsetsByTimestamp": f'{{"a": {MOMENT}}}'}

    assert read_options(GIVEN | given, streaming=False).ending == OffsetSpecs(
        LATEST, {"a": OffsetSpec(OffsetKind.MOMENT, MOMENT)}
    )


def test_positions_that_contradict_each_other_are_refused() -> None:
    given = {"startingOffsets": "earliest", "startingTimestamp": str(MOMENT)}

    with pytest.raises(ConfigurationError, match="startingOffsets and startingTimestamp"):
        read_options(GIVEN | given, streaming=True)


@pytest.mark.parametrize("text", ["first", "", "{", '{"a": -3}', '{"a": true}', '{"a": "now"}'])
def test_what_is_no_position_says_what_is(text: str) -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets"):
        parse_offset_specs(text, "startingOffsets", EARLIEST)


@pytest.mark.parametrize(
    ("text", "offset", "settled"),
    [
        ("earliest", 10, True),
        ('{"a": 10}', 10, True),
        ("latest", 10, False),
        ("2026-01-31", 9, True),
        ("2026-01-31", 10, False),
    ],
)
def test_whether_a_beginning_is_found_again(text: str, offset: int, settled: bool) -> None:
    positions = parse_offset_specs(text, "startingOffsets", EARLIEST)

    assert positions.settled("a", offset, end=10) is settled


@pytest.mark.parametrize(
    ("text", "names", "patterns"),
    [
        ("sensors", {"sensors"}, ()),
        ("a, b ,c", {"a", "b", "c"}, ()),
        ("a,b-*", {"a"}, ("b-*",)),
        ("s-[0-3]", set(), ("s-[0-3]",)),
        ('["a,b", "c*"]', {"a,b", "c*"}, ()),
    ],
)
def test_which_streams(text: str, names: set[str], patterns: tuple[str, ...]) -> None:
    selection = read_options(GIVEN | {"streams": text}, streaming=True).selection

    assert (set(selection.names), selection.patterns) == (names, patterns)


@pytest.mark.parametrize(
    ("option", "value", "streaming"),
    [
        ("streams", " , ", True),
        ("maxOffsetsPerTrigger", "0", True),
        ("maxOffsetsPerTrigger", "many", True),
        ("maxBytesPerTrigger", "0", True),
        ("maxBytesPerTrigger", "much", True),
        ("maxBytesPerTrigger", "1MiB", False),
        ("maxOffsetsPerTrigger", "1", False),
        ("startingTimestamp", "latest", True),
        ("startingTimestamp", '{"a": 1}', True),
        ("startingOffsetsByTimestamp", "7", True),
        ("startingOffsetsByTimestamp", '{"a": "earliest"}', True),
        ("endingTimestamp", "1", True),
        ("endingOffsetsByTimestamp", "[]", False),
        ("subscribe", "sensors", True),
        ("minOffsetsPerTrigger", "5", True),
        ("failOnDataLoss", "maybe", True),
        ("endingOffsets", "latest", True),
        ("startingOffsets", "latest", False),
        ("endingOffsets", "earliest", False),
        ("startingOffset", "latest", True),
        ("retrySeconds", "long", True),
        ("patienceSeconds", "long", True),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(option: str, value: str, streaming: bool) -> None:
    with pytest.raises(ConfigurationError, match=option) as refused:
        read_options(GIVEN | {option: value}, streaming=streaming)

    assert "pa55" not in str(refused.value)


def test_the_former_name_of_the_retry_time_is_accepted() -> None:
    old = write_options({"url": "amqp://host", "patienceSeconds": "7"})
    both = write_options({"url": "amqp://host", "patienceSeconds": "7", "retrySeconds": "8"})

    assert (old.retry_seconds, both.retry_seconds) == (7.0, 8.0)


def test_options_of_spark_itself_are_left_alone() -> None:
    write_options({"url": "amqp://host", "checkpointLocation": "/tmp/x", "queryName": "q"})


def test_a_query_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert read_options(GIVEN, streaming=True).starting.default == LATEST
    assert read_options(GIVEN, streaming=False).starting.default == EARLIEST
