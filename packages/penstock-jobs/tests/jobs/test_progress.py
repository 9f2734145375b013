"""What commands print of how far they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock_jobs.executors.commands import CommandProgress, read_date


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("percent: 10%", 0.10),
        ("percent: 12.5%", 0.125),
        ("percent: 1%", 0.01),
        ("percent:0%", 0.0),
        ("  percent:  .5 %", 0.005),
        ("percent: 100%\n", 1.0),
        ("percent: 250%", 1.0),
    ],
)
def test_percents_are_hundredths(line: str, share: float) -> None:
    assert CommandProgress().after(line).share == pytest.approx(share)


@pytest.mark.parametrize(
    "line", ["", "percent: x%", "10%", "percent: 10", "percents: 10%", "finish:"]
)
def test_other_lines_change_nothing(line: str) -> None:
    before = CommandProgress(0.3, datetime(2026, 1, 1, tzinfo=UTC))
    assert before.after(line) == before


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("Mon May  5 10:10:32 CEST 2014", 2),
        ("Mon May  5 10:10:32 AM CEST 2014", 2),
        ("Mon May  5 10:10:32 UTC 2014", 0),
        ("Mon May  5 10:10:32 EST 2014", -5),
        ("Mon May  5 10:10:32 +0530 2014", 5.5),
        ("Mon May  5 10:10:32 -03 2014", -3),
        ("2014-05-05T10:10:32+02:00", 2),
        ("2014-05-05 10:10:32", 0),
    ],
)
def test_dates_as_iso_and_as_the_program_prints_them(text: str, hours: float) -> None:
    zone = timezone(timedelta(hours=hours))
    assert read_date(text) == datetime(2014, 5, 5, 10, 10, 32, tzinfo=zone)


def test_the_afternoon_of_twelve_hours() -> None:
    assert read_date("Mon May  5 12:10:32 AM UTC 2014") == datetime(
        2014, 5, 5, 0, 10, 32, tzinfo=UTC
    )
    assert read_date("Mon May  5 01:10:32 PM UTC 2014") == datetime(
        2014, 5, 5, 13, 10, 32, tzinfo=UTC
    )


@pytest.mark.parametrize(
    "text",
    [
        "lun brumaire 5 10:10:32 CEST 2014",
        "soon",
        "Mon May 35 10:10:32 UTC 2014",
        "Mon May  5 10:10:32 XYZ 2014",
    ],
)
def test_a_date_that_cannot_be_read_leaves_the_estimate(text: str) -> None:
    before = CommandProgress(0.3, datetime(2026, 1, 1, tzinfo=UTC))
    assert read_date(text) is None
    assert before.after(f"finish: {text}") == before


def test_lines_add_up() -> None:
    progress = CommandProgress().after("percent: 10%").after("finish: 2026-05-05T10:10:32+00:00")
    assert progress == CommandProgress(0.1, datetime(2026, 5, 5, 10, 10, 32, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        "lun may 5 10:10:32 CEST 2014",
        "dl. maig  5 10:10:32 CEST 2014",
        "lun 05 may 2014 10:10:32 CEST",
        "Mo 5. Mai 10:10:32 CEST 2014",
        "dl., 5 de maig de 2014 10:10:32 CEST",
    ],
)
def test_dates_of_other_languages_are_read(text: str) -> None:
    zone = timezone(timedelta(hours=2))

    assert read_date(text) == datetime(2014, 5, 5, 10, 10, 32, tzinfo=zone)
