"""Messages of several parts, by boundaries that only the message itself knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import MessageFormat, mime, read_request, read_response
from penstock_jobs.formats.mime import MimePart
from penstock_jobs.model import JobResponse, PredictModels

XML = b'<request id="433" type="predict_models"/>'
LISTING = b"\n".join(
    [
        b"--frontier",
        b"Content-Type: text/xml",
        b"",
        XML,
        b"--frontier",
        b"Content-Type: application/zip",
        b"Content-Transfer-Encoding: base64",
        b"",
        b"cGFjbnw=",
        b"--frontier--",
    ]
)


@pytest.mark.parametrize(
    "data", [LISTING, LISTING.replace(b"\n", b"\r\n"), b"\n\n" + LISTING + b"\n"]
)
def test_the_boundary_is_taken_from_the_first_line(data: bytes) -> None:
    assert read_request(data) == (PredictModels("433", {}, b"pacn|"), MessageFormat.MIME)


def test_an_error_comes_as_one_part() -> None:
    data = (
        b"-----=_Part_1_753816592.1411823972136\nContent-Type: text/xml\n\n"
        b'<response error="failed command" id="1" progress="1.0" type="build_models"/>\n'
        b"-----=_Part_1_753816592.1411823972136--\n"
    )
    assert read_response(data)[0] == JobResponse("1", "build_models", error="failed command")


def test_what_only_looks_like_the_boundary_is_content() -> None:
    data = LISTING.replace(XML, b"<!-- \n--frontiers\n --frontier\n-->\n" + XML)
    with pytest.raises(
        JobFormatError, match="line"
    ):  # XML has no -- in comments; MIME let it through
        read_request(data)
    assert b"--frontiers" in mime.read(data)[0].content


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5))
def test_parts_are_read_as_they_were_written(contents: list[bytes]) -> None:
    parts = [MimePart("application/zip", content) for content in contents]
    assert mime.read(mime.write(parts)) == parts


def test_encodings() -> None:
    def part(encoding: bytes, content: bytes) -> bytes:
        head = b"--x\nContent-Type: text/plain;\n charset=utf-8\n"
        return head + b"Content-Transfer-Encoding: " + encoding + b"\n\n" + content + b"\n--x--"

    assert mime.read(part(b"quoted-printable", b"a=3Db"))[0] == MimePart("text/plain", b"a=b")
    assert mime.read(part(b"8BIT", b"a=b"))[0] == MimePart("text/plain", b"a=b")
    assert mime.read(part(b"BASE64", b"YT1i\nYT1i"))[0] == MimePart("text/plain", b"a=ba=b")
    with pytest.raises(JobFormatError, match="unknown transfer encoding 'rot13'"):
        mime.read(part(b"rot13", b"a"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"--\n", "the first line is not a boundary"),
        (b"-- \n", "the first line is not a boundary"),
        (b"--" + b"x" * 71 + b"\n", "the first line is not a boundary"),
        (b"--x", "the first line is not a boundary"),
        (LISTING[: -len(b"--frontier--")], "the final boundary --frontier-- is missing"),
        (LISTING.replace(b"--frontier--", b"--other--"), "--frontier-- is missing"),
        (LISTING.replace(b"cGFjbnw=", b"cGFjbnw"), "part 2: not base64"),
        (LISTING.replace(b"cGFjbnw=", b"c@@jbnw="), "part 2: not base64"),
        (b"--x\nContent-Type: text/xml\n--x--", "part 1: no end of the headers"),
        (b"--x\nContent\n\ny\n--x--", "part 1: b'Content' is not a header"),
        (b"--x\n\nhello\n--x--", "got: text/plain"),
        (LISTING.replace(b"application/zip", b"text/xml"), "got: text/xml, text/xml"),
        (b"--x\n\na\n" * 20 + b"--x--", "more than 16 parts"),
    ],
)
def test_what_is_wrong_is_told(data: bytes, what: str) -> None:
    with pytest.raises(JobFormatError) as refused:
        read_request(data)
    assert what in str(refused.value)


def test_headers_are_bounded() -> None:
    data = b"--x\n" + b"a: b\n" * 10_000 + b"\nbody\n--x--\n"
    with pytest.raises(JobFormatError, match="no end of the headers within 16,384 bytes"):
        mime.read(data)
