"""Reports: a post, and what became of it."""

from __future__ import annotations

import pytest

from penstock_pump.errors import BadPost
from penstock_pump.posts import Checksum, Post
from penstock_pump.posts.post import InlineContent
from penstock_pump.posts.reports import PostReport, read_report, write_report

POST = Post(
    moment=1_700_000_000_000_000_000,
    base_url="http://h/",
    relpath="a b/c",
    sum=Checksum("d", "00"),
    extra={"flow": "x"},
)


def test_what_is_reported_is_read_again() -> None:
    report = PostReport(POST, 201, "Downloaded", "host", "user", 1.5)
    encoded = write_report(report)
    assert encoded.body == "20231114221320 http://h/ a%20b/c 201 host user 1.500000"
    assert dict(encoded.headers) == {"sum": "d,00", "flow": "x", "message": "Downloaded"}
    assert read_report(str(encoded.body).encode(), encoded.headers) == report


def test_a_reader_is_known_by_its_own_word_or_by_host_and_user() -> None:
    report = PostReport(POST, 201, "", "host", "user", 1.5, "abc")
    encoded = write_report(report)
    found = read_report(str(encoded.body).encode(), encoded.headers)
    assert (found, found.who) == (report, "abc")
    assert PostReport(POST, 201, "", "host", "user", 1.5).who == "user@host"


def test_contents_never_travel_back() -> None:
    inlined = Post(moment=0, base_url="http://h/", relpath="a", content=InlineContent(b"secret"))
    encoded = write_report(PostReport(inlined, 201, "", "h", "u", 0.0))
    assert "secret" not in str(encoded)


def test_words_without_blanks() -> None:
    encoded = write_report(PostReport(POST, 201, "", "a host", "", 0.0))
    assert str(encoded.body).endswith(" 201 a_host - 0.000000")


@pytest.mark.parametrize("rest", ["", " 201", " x h u 1", " 201 h u fast"])
def test_what_is_no_report_is_refused(rest: str) -> None:
    with pytest.raises(BadPost):
        read_report(f"20231114221320 http://h/ a{rest}".encode(), {})
