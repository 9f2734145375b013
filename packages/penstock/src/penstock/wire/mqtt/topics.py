"""Topics and topic filters: what makes one legal, and the routing key it is in AMQP.

A topic and its key differ by one exchange of bytes, `/` for `.` and `+` for `*`, which is its own
inverse: nothing is lost either way, and a topic with dots in it stays apart from one with slashes.
`#` means the same on both sides.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.mqtt.fields import STRING_MAX_BYTES, decode_utf8_string
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

TOPIC_KEY_TRANSLATION: Final[bytes] = bytes.maketrans(b"/.+*", b"./*+")

_SHARE_PREFIX: Final = "$share/"

#: Behind it stands a subscription in the content language, or the class of a publication.
CONTENT_TOPIC_PREFIX: Final = "$content/"


def topic_to_routing_key(topic: bytes) -> bytes:
    return topic.translate(TOPIC_KEY_TRANSLATION)


def routing_key_to_topic(key: bytes) -> bytes:
    return key.translate(TOPIC_KEY_TRANSLATION)


def check_topic_name_bytes(content: bytes) -> str:
    """The topic of a PUBLISH, from the wire: UTF-8, and a name a message may have."""
    topic = decode_utf8_string(content)
    check_topic_name(topic)
    return topic


def check_topic_name(topic: str) -> None:
    """A topic names one thing: wildcards have no place in it."""
    _check_length_and_characters(topic, ReasonCode.TOPIC_NAME_INVALID)
    if "+" in topic or "#" in topic:
        raise MqttError(
            ReasonCode.TOPIC_NAME_INVALID, f"wildcard in the topic {_abbreviate(topic)}"
        )


def check_topic_filter(filter: str) -> None:  # noqa: A002 (the standard's word)
    """In a filter `+` stands for a whole level, and `#` for all that are left."""
    _check_length_and_characters(filter, ReasonCode.TOPIC_FILTER_INVALID)
    if filter.startswith(CONTENT_TOPIC_PREFIX):  # the characters of another language
        return
    if "#" in filter and filter != "#" and (not filter.endswith("/#") or filter.count("#") > 1):
        raise _invalid(filter, "'#' must be the last level, alone in it")
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        raise _invalid(filter, "'+' must be alone in its level")


def split_shared_filter(filter: str) -> tuple[str | None, str]:  # noqa: A002
    """`$share/group/filter` → the group and the filter; any other filter belongs to no group."""
    if not filter.startswith(_SHARE_PREFIX):
        return None, filter
    group, slash, shared = filter[len(_SHARE_PREFIX) :].partition("/")
    if not group or "+" in group or "#" in group:
        raise _invalid(filter, "the name of a share has at least one character, no '+' and no '#'")
    if not slash or not shared:
        raise _invalid(filter, "the name of a share must be followed by '/' and a filter")
    return group, shared


def _check_length_and_characters(text: str, reason: ReasonCode) -> None:
    if not text:
        raise MqttError(reason, "a topic has at least one character")
    if "\0" in text:
        raise MqttError(reason, f"U+0000 in the topic {_abbreviate(text)}")
    # A character takes four bytes at most: only what may be too long is measured.
    if (
        len(text) > STRING_MAX_BYTES // 4
        and len(text.encode("utf-8", "replace")) > STRING_MAX_BYTES
    ):
        raise MqttError(reason, f"a topic has at most {STRING_MAX_BYTES} bytes")


def _invalid(filter: str, rule: str) -> MqttError:  # noqa: A002
    return MqttError(ReasonCode.TOPIC_FILTER_INVALID, f"topic filter {_abbreviate(filter)}: {rule}")


def _abbreviate(text: str) -> str:
    """As much of it as a person needs: this goes to logs and to the peer."""
    return repr(text if len(text) <= 80 else text[:79] + "…")
