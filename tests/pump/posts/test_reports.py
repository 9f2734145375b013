"""Reports: a post, and what became of it."""

from __future__ import annotations

import pytest

from penstock.pump.errors import BadPost
from penstock.pump.posts import Post, Sum
from penstock.pump.posts.post import Inline
from penstock.pump.posts.reports import Report, read_report, write_report

POST = Post(
    moment=1_700_000_000_000_000_000,
    base_url="http://h/",
    relpath="a b/c",
    sum=Sum("d", "00"),
    extra={"flow": "x"},
)


def test_what_is_reported_is_read_again() -> None:
    report = Report(POST, 201, "Downloaded", "host", "user", 1.5)
    spelled = write_report(report)
    assert spelled.body == "20231114221320 http://h/ a%20b/c 201 host user 1.500000"
    assert dict(spelled.headers) == {"sum": "d,00", "flow": "x", "message": "Downloaded"}
    assert read_report(str(spelled.body).encode(), spelled.headers) == report


def test_a_reader_is_known_by_its_own_word_or_by_host_and_user() -> None:
    report = Report(POST, 201, "", "host", "user", 1.5, "abc")
    spelled = write_report(report)
    found = read_report(str(spelled.body).encode(), spelled.headers)
    assert (found, found.who) == (report, "abc")
    assert Report(POST, 201, "", "host", "user", 1.5).who == "user@host"


def test_contents_never_travel_back() -> None:
    inlined = Post(moment=0, base_url="http://h/", relpath="a", content=Inline(b"secret"))
    spelled = write_report(Report(inlined, 201, "", "h", "u", 0.0))
    assert "secret" not in str(spelled)


def test_words_without_blanks() -> None:
    spelled = write_report(Report(POST, 201, "", "a host", "", 0.0))
    assert str(spelled.body).endswith(" 201 a_host - 0.000000")


@pytest.mark.parametrize("rest", ["", " 201", " x h u 1", " 201 h u fast"])
def test_what_is_no_report_is_refused(rest: str) -> None:
    with pytest.raises(BadPost):
        read_report(f"20231114221320 http://h/ a{rest}".encode(), {})
