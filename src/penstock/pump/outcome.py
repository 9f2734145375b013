"""What became of a post."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.pump.posts.post import Post

#: Not for us: a reason for our own eyes, and no report to anybody.
REJECTED: Final = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A code and a word for the report; the post as it is true now, where others should know."""

    code: int
    message: str
    post: Post | None = None
    place: str | None = None  #: where the file is
    whole: bool = True  #: not so while blocks of it are missing
