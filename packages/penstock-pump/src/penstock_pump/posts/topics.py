"""Topics of posts: a prefix and the directories of the path.

Over AMQP words are separated by dots, and dots in directory names add words, as in Sarracenia. Over
MQTT they are separated by slashes, and the exchange is the first. A `#` binding matches topics with
the name of the file, as sr_post(7) defines them, as well as those without.
"""

from __future__ import annotations

from typing import Final

from penstock.core.logs import get_logger

log = get_logger(__name__)

#: A routing key has at most 255 bytes; Sarracenia does not use two of them.
MAX_TOPIC_BYTES: Final = 253


def topic_words(relpath: str, *, with_name: bool = False, escape_blanks: bool = True) -> list[str]:
    """The words after the prefix: directories, and with `with_name` the name of the file. v2
    escapes blanks and `#`, sr3 wildcards only."""
    words = [word for word in relpath.split("/") if word]
    if not with_name and not relpath.endswith("/"):
        words = words[:-1]
    if not escape_blanks:
        return [word.replace("#", "%23").replace("*", "%22") for word in words]
    return [_escaped(word) for word in words]


def routing_key(prefix: str, words: list[str]) -> str:
    key = ".".join([prefix, *words] if prefix else words)
    while ".." in key:
        key = key.replace("..", ".")
    return _truncated(key.rstrip("."))


def mqtt_topic(exchange: str, prefix: str, words: list[str]) -> str:
    levels = [exchange, *prefix.split("."), *(word.replace("+", "%2B") for word in words)]
    return "/".join(level for level in levels if level)


def mqtt_filter(exchange: str, prefix: str, subtopic: str) -> str:
    """The MQTT filter of an AMQP subtopic (`*`, `#`, dots)."""
    levels = [exchange, *prefix.split("."), *subtopic.split(".")]
    return "/".join("+" if level == "*" else level for level in levels if level)


def _escaped(word: str) -> str:
    return word.replace(" ", "%20").replace("#", "%23")


def _truncated(key: str) -> str:
    encoded = key.encode()
    if len(encoded) <= MAX_TOPIC_BYTES:
        return key
    log.warning("topic truncated", topic=key)
    return encoded[:MAX_TOPIC_BYTES].decode(errors="ignore").rstrip(".")
