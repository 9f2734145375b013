"""MQTT topics and topic filters: validation, and the translation to AMQP routing keys.

The translation exchanges `/` with `.` and `+` with `*` and is its own inverse: a topic with dots
stays distinct from one with slashes. `#` means the same on both sides.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.mqtt.fields import STRING_MAX_BYTES, decode_utf8_string
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

TOPIC_KEY_TRANSLATION: Final[bytes] = bytes.maketrans(b"/.+*", b"./*+")

_SHARE_PREFIX: Final = "$share/"

#: Followed by a subscription of the content language, or by the class of a publication.
CONTENT_TOPIC_PREFIX: Final = "$content/"


def topic_to_routing_key(topic: bytes) -> bytes:
    return topic.translate(TOPIC_KEY_TRANSLATION)


def routing_key_to_topic(key: bytes) -> bytes:
    return key.translate(TOPIC_KEY_TRANSLATION)


def check_topic_name_bytes(content: bytes) -> str:
    """The topic of a PUBLISH; raises `MqttError` if it is invalid."""
    topic = decode_utf8_string(content)
    check_topic_name(topic)
    return topic


def check_topic_name(topic: str) -> None:
    _check_length_and_characters(topic, ReasonCode.TOPIC_NAME_INVALID)
    if "+" in topic or "#" in topic:
        raise MqttError(
            ReasonCode.TOPIC_NAME_INVALID, f"wildcard in the topic {_abbreviate(topic)}"
        )


def check_topic_filter(filter: str) -> None:  # noqa: A002 (the standard's word)
    """`+` must be a whole level, `#` the last one."""
    _check_length_and_characters(filter, ReasonCode.TOPIC_FILTER_INVALID)
    if filter.startswith(CONTENT_TOPIC_PREFIX):  # the content language has its own syntax
        return
    if "#" in filter and filter != "#" and (not filter.endswith("/#") or filter.count("#") > 1):
        raise _invalid(filter, "'#' must be the last level, alone in it")
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        raise _invalid(filter, "'+' must be alone in its level")


def split_shared_filter(filter: str) -> tuple[str | None, str]:  # noqa: A002
    """`$share/group/filter` → the group and the filter; None for a filter without a group."""
    if not filter.startswith(_SHARE_PREFIX):
        return None, filter
    group, slash, shared = filter[len(_SHARE_PREFIX) :].partition("/")
    if not group or "+" in group or "#" in group:
        raise _invalid(filter, "a share name must not be empty or contain '+' or '#'")
    if not slash or not shared:
        raise _invalid(filter, "a share name must be followed by '/' and a filter")
    return group, shared


def _check_length_and_characters(text: str, reason: ReasonCode) -> None:
    if not text:
        raise MqttError(reason, "empty topic")
    if "\0" in text:
        raise MqttError(reason, f"U+0000 in the topic {_abbreviate(text)}")
    # A character takes at most four bytes: only long texts are measured.
    if (
        len(text) > STRING_MAX_BYTES // 4
        and len(text.encode("utf-8", "replace")) > STRING_MAX_BYTES
    ):
        raise MqttError(reason, f"topic of more than {STRING_MAX_BYTES} bytes")


def _invalid(filter: str, rule: str) -> MqttError:  # noqa: A002
    return MqttError(ReasonCode.TOPIC_FILTER_INVALID, f"topic filter {_abbreviate(filter)}: {rule}")


def _abbreviate(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
