"""Topics and filters: which may be used, and which match.

A filter is levels with slashes between; `+` stands for one level, a last `#` for any number of
them. `$share/GROUP/FILTER` matches as FILTER does and shares the messages with the group. Neither
wildcard matches a first level that begins with `$`. `$content/SUBSCRIPTION` matches by what a
message says, which the broker has seen to: here all messages by content do.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import PreconditionFailed

SHARE_PREFIX: Final = "$share/"
CONTENT_PREFIX: Final = "$content/"
_MAX_BYTES: Final = 0xFFFF


def check_topic(topic: str) -> None:
    _check_text("topic", topic)
    if "+" in topic or "#" in topic:
        raise PreconditionFailed(
            f"{topic!r} is no topic to send to: + and # are for subscriptions only"
        )


def check_filter(pattern: str) -> None:
    _check_text("topic filter", pattern)
    if pattern.startswith(SHARE_PREFIX):
        group, slash, rest = pattern.removeprefix(SHARE_PREFIX).partition("/")
        if not group or not slash or not rest or "+" in group or "#" in group:
            raise PreconditionFailed(
                f"{pattern!r} is no shared topic filter: should be $share/GROUP/FILTER"
            )
    if pattern.startswith(CONTENT_PREFIX):
        return
    levels = without_share_prefix(pattern).split("/")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        raise PreconditionFailed(
            f"{pattern!r} is no topic filter: # stands for a whole level, the last, as in sensors/#"
        )
    if any("+" in level and level != "+" for level in levels):
        raise PreconditionFailed(
            f"{pattern!r} is no topic filter: + stands for a whole level, as in sensors/+/report"
        )


def without_share_prefix(pattern: str) -> str:
    """What a filter matches by, without the group that shares it."""
    return pattern.split("/", 2)[2] if pattern.startswith(SHARE_PREFIX) else pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether a filter, without a group, matches."""
    if pattern.startswith(CONTENT_PREFIX):
        return topic.startswith(CONTENT_PREFIX)
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place == len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


def _check_text(what: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise PreconditionFailed(f"{text!r} is no {what}: it is not UTF-8") from None
    if not 0 < size <= _MAX_BYTES or "\0" in text:
        raise PreconditionFailed(
            f"{text[:40]!r} is no {what}: it should have 1 to {_MAX_BYTES} bytes and no null"
        )
