"""Reports on the outcome of posts, sent back to the broker of the post; see sr_report(7).

The body is the post's, followed by code, host, user and duration. The headers are the post's and a
readable `message`. Inlined content is left out.
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
PART_FILE: Final = 307
NOT_COPIED: Final = 499
#: A post that was not accepted: counted by its reason, and not reported.
REJECTED: Final = 0

_OURS: Final = ("message", "reader")


@dataclass(frozen=True, slots=True)
class PostReport:
    post: Post
    code: int
    message: str
    host: str
    user: str
    seconds: float
    #: Distinguishes reporters with the same user and host; only this pump sets it.
    reader: str = ""

    @property
    def who(self) -> str:
        return self.reader or f"{self.user}@{self.host}"


def write_report(report: PostReport) -> EncodedPost:
    encoded = V02().encode(replace(report.post, content=None))
    suffix = f"{report.code} {_one_word(report.host)} {_one_word(report.user)} {report.seconds:f}"
    # v02 limits the length of headers.
    headers = {**encoded.headers, "message": report.message[:200]}
    if report.reader:
        headers["reader"] = report.reader
    return EncodedPost(f"{encoded.body} {suffix}", headers)


def read_report(body: bytes, headers: Mapping[str, Any]) -> PostReport:
    moment, base_url, relpath, rest = split_body(body)
    if len(rest) < 4:
        raise BadPost("a report should have code, host, user and duration after the post")
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


def is_report_topic(topic: str) -> bool:
    """Over AMQP or MQTT; a topic of MQTT begins with the exchange."""
    return f"{PREFIX}." in f"{topic.replace('/', '.')}."


def _one_word(text: str) -> str:
    return "_".join(text.split()) or "-"


@dataclass(frozen=True, slots=True)
class PostOutcome:
    code: int
    message: str
    post: Post | None = None  #: to be announced to others, with what was learned
    path: str | None = None  #: of the local file
    whole: bool = True  #: False while blocks of the file are missing
