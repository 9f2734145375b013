"""Reports: what became of a file, told to where its post came from; sr_report(7).

The body is the post's with a code, a host, a user and a duration behind it, the headers are the
post's and a `message` for people. Contents that were inlined never travel back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock_pump.errors import BadPost
from penstock_pump.posts.codec import EncodedPost
from penstock_pump.posts.post import Post
from penstock_pump.posts.v02 import V02, post_of, split_body

PREFIX: Final = "v02.report"

DONE: Final = 201
TRANSFORMED: Final = 203
RECOMPUTED: Final = 205
NOT_MODIFIED: Final = 304
PART_KEPT: Final = 307
BAD_MESSAGE: Final = 417
NOT_COPIED: Final = 499
FAILED: Final = 500
UNAVAILABLE: Final = 503

_OURS: Final = ("message", "reader")


@dataclass(frozen=True, slots=True)
class PostReport:
    post: Post
    code: int
    message: str
    host: str
    user: str
    seconds: float
    #: Tells apart those who report from one host by one name; ours say it, others do not.
    reader: str = ""

    @property
    def who(self) -> str:
        return self.reader or f"{self.user}@{self.host}"


def write_report(report: PostReport) -> EncodedPost:
    encoded = V02().encode(replace(report.post, content=None))
    behind = f"{report.code} {_one_word(report.host)} {_one_word(report.user)} {report.seconds:f}"
    # A text for people may be cut; a header may not be longer than v02 has it.
    headers = {**encoded.headers, "message": report.message[:200]}
    if report.reader:
        headers["reader"] = report.reader
    return EncodedPost(f"{encoded.body} {behind}", headers)


def read_report(body: bytes, headers: Mapping[str, Any]) -> PostReport:
    moment, base_url, relpath, rest = split_body(body)
    if len(rest) < 4:
        raise BadPost("a report has a code, a host, a user and a duration behind the post")
    try:
        code, seconds = int(rest[0]), float(rest[3])
    except ValueError:
        raise BadPost(f"report {' '.join(rest)[:80]!r} should be CODE HOST USER SECONDS") from None
    post = post_of(
        moment,
        base_url,
        relpath.replace("%20", " ").replace("%23", "#"),
        {name: value for name, value in headers.items() if name not in _OURS},
    )
    message, reader = (str(headers.get(name, "")) for name in _OURS)
    return PostReport(post, code, message, rest[1], rest[2], seconds, reader)


def _one_word(text: str) -> str:
    return "_".join(text.split()) or "-"


# What became of a post.

#: Not for us: a reason for our own eyes, and no report to anybody.
REJECTED: Final = 0


@dataclass(frozen=True, slots=True)
class PostOutcome:
    """A code and a word for the report; the post as it is true now, where others should know."""

    code: int
    message: str
    post: Post | None = None
    place: str | None = None  #: where the file is
    whole: bool = True  #: not so while blocks of it are missing
