"""Messages as rows of silver: posts, reports, and what is neither."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from penstock_pump.lake.announcements import is_report, row_of

AT = datetime(2026, 11, 15, 12, 0, 1, tzinfo=UTC)


def message(body: str, key: str = "v02.post.a", **headers: str) -> dict[str, Any]:
    return {
        "stream": "announcements",
        "offset": 7,
        "timestamp": AT,
        "exchange": "xpublic",
        "routing_key": key,
        "headers": list(headers.items()),
        "body": body.encode(),
        "day": date(2026, 11, 15),
    }


def test_a_post_is_a_row_with_what_it_says_and_where_it_came() -> None:
    row = row_of(
        message("20261115120000.25 http://h/ a/b%20c", sum="s,ab", parts="i,10,3,5,1", source="me")
    )
    assert (row["kind"], row["exchange"], row["at"], row["offset"]) == ("post", "xpublic", AT, 7)
    assert row["moment"] == datetime(2026, 11, 15, 12, 0, 0, 250_000, UTC)
    assert (row["relpath"], row["name"], row["base_url"]) == ("a/b c", "b c", "http://h/")
    assert (row["event"], row["sum"], row["source"]) == ("modify", "s,ab", "me")
    assert (row["size"], row["length"], row["block"], row["blocks"]) == (25, 10, 1, 3)
    assert row.get("code") is None


def test_a_report_has_its_code_and_who_sent_it() -> None:
    body = "20261115120000 http://h/ a/b 201 box me 0.125000"
    row = row_of(message(body, "v02.report.a", message="Downloaded", sum="d,1"))
    assert (row["kind"], row["code"], row["message"]) == ("report", 201, "Downloaded")
    assert (row["host"], row["user"], row["seconds"]) == ("box", "me", 0.125)
    assert row["relpath"] == "a/b"


def test_what_is_neither_is_a_row_with_the_reason() -> None:
    row = row_of(message("good morning"))
    assert (row["kind"], row["code"]) == ("unreadable", 417)
    assert "TIME BASE_URL RELPATH" in row["message"]


def test_reports_are_told_by_their_topic_over_amqp_and_mqtt() -> None:
    assert is_report("v02.report.a.b")
    assert is_report("v02.report")
    assert is_report("xs_guest.v02.report.a")
    assert not is_report("v02.post.report")
    assert not is_report("v03.a.report")
