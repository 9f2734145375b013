"""Topics and topic filters of MQTT, as the client checks and matches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.errors import PreconditionFailed
from penstock.wire.mqtt.reason_codes import MqttError
from penstock.wire.mqtt.topics import (
    CONTENT_TOPIC_PREFIX,
    check_topic_filter,
    check_topic_name,
    split_shared_filter,
)

SHARE_PREFIX: Final = "$share/"


def check_topic(topic: str) -> None:
    _check("topic", topic, check_topic_name)


def check_filter(pattern: str) -> None:
    _check("topic filter", pattern, lambda text: check_topic_filter(split_shared_filter(text)[1]))


def without_share_prefix(pattern: str) -> str:
    return pattern.split("/", 2)[2] if pattern.startswith(SHARE_PREFIX) else pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether a filter without a share matches. Wildcards do not match a first level with `$`.

    The broker evaluates `$content/SUBSCRIPTION`: here it matches all messages by content.
    """
    if pattern.startswith(CONTENT_TOPIC_PREFIX):
        return topic.startswith(CONTENT_TOPIC_PREFIX)
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def _check(kind: str, text: str, check: Callable[[str], object]) -> None:
    try:
        text.encode()
        check(text)
    except (UnicodeEncodeError, MqttError) as error:
        raise PreconditionFailed(f"{text[:40]!r} is not a valid {kind}: {error}") from None
