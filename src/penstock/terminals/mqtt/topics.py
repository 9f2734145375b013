"""Topics and topic filters: what makes one legal, and the routing key it is in AMQP.

A topic and its key differ by one exchange of bytes, `/` for `.` and `+` for `*`, which is its own
inverse: nothing is lost either way, and a topic with dots in it stays apart from one with slashes.
`#` means the same on both sides.
"""

from __future__ import annotations

from typing import Final

from penstock.terminals.mqtt.fields import LENGTH_MAX, text_of
from penstock.terminals.mqtt.reasons import MqttError, Reason

TRANSLATION: Final[bytes] = bytes.maketrans(b"/.+*", b"./*+")

_SHARE: Final = "$share/"

#: Behind it stands a subscription in the content language, or the class of a publication.
CONTENT: Final = "$content/"


def to_key(topic: bytes) -> bytes:
    return topic.translate(TRANSLATION)


def to_topic(key: bytes) -> bytes:
    return key.translate(TRANSLATION)


def read_topic(content: bytes) -> str:
    """The topic of a PUBLISH, from the wire: UTF-8, and a name a message may have."""
    topic = text_of(content)
    check_topic(topic)
    return topic


def check_topic(topic: str) -> None:
    """A topic names one thing: wildcards have no place in it."""
    _check_text(topic, Reason.TOPIC_NAME_INVALID)
    if "+" in topic or "#" in topic:
        raise MqttError(Reason.TOPIC_NAME_INVALID, f"wildcard in the topic {_shown(topic)}")


def check_filter(filter: str) -> None:  # noqa: A002 (the standard's word)
    """In a filter `+` stands for a whole level, and `#` for all that are left."""
    _check_text(filter, Reason.TOPIC_FILTER_INVALID)
    if filter.startswith(CONTENT):  # the characters of another language
        return
    if "#" in filter and filter != "#" and (not filter.endswith("/#") or filter.count("#") > 1):
        raise _invalid(filter, "'#' must be the last level, alone in it")
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        raise _invalid(filter, "'+' must be alone in its level")


def split_share(filter: str) -> tuple[str | None, str]:  # noqa: A002
    """`$share/group/filter` → the group and the filter; any other filter belongs to no group."""
    if not filter.startswith(_SHARE):
        return None, filter
    group, slash, shared = filter[len(_SHARE) :].partition("/")
    if not group or "+" in group or "#" in group:
        raise _invalid(filter, "the name of a share has at least one character, no '+' and no '#'")
    if not slash or not shared:
        raise _invalid(filter, "the name of a share must be followed by '/' and a filter")
    return group, shared


def _check_text(text: str, reason: Reason) -> None:
    if not text:
        raise MqttError(reason, "a topic has at least one character")
    if "\0" in text:
        raise MqttError(reason, f"U+0000 in the topic {_shown(text)}")
    # A character takes four bytes at most: only what may be too long is measured.
    if len(text) > LENGTH_MAX // 4 and len(text.encode("utf-8", "replace")) > LENGTH_MAX:
        raise MqttError(reason, f"a topic has at most {LENGTH_MAX} bytes")


def _invalid(filter: str, rule: str) -> MqttError:  # noqa: A002
    return MqttError(Reason.TOPIC_FILTER_INVALID, f"topic filter {_shown(filter)}: {rule}")


def _shown(text: str) -> str:
    """As much of it as a person needs: this goes to logs and to the peer."""
    return repr(text if len(text) <= 80 else text[:79] + "…")
