"""Flags and manners that `penstock pub` and `penstock sub` share.

The broker may be named first, as a URL, or by `--url`; its scheme says what is spoken, and what is
spoken says which flags mean something. One that does not is refused with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from penstock.client.mqtt.topics import check_filter, check_topic
from penstock.core.config import LogSettings
from penstock.core.errors import PreconditionFailed
from penstock.core.logs import configure_logs
from penstock.core.units import parse_seconds

DEFAULT_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="PENSTOCK_URL",
        help="The broker: amqp://, amqp+1.0://, mqtt://, ws:// or padres://, or with TLS.",
    ),
]

#: Headings of the help.
PATTERNS: Final = "Patterns"
ONLY_MQTT: Final = "MQTT only"

AMQP: Final = "AMQP"
MQTT: Final = "MQTT"
PADRES: Final = "PADRES"
_MQTT_SCHEMES: Final = ("mqtt", "mqtts", "ws", "wss")
_PADRES_SCHEMES: Final = ("padres", "padress")

#: What a protocol does not have, and what to do instead.
_UNSUPPORTED_OPTIONS: Final = {
    AMQP: {
        "--qos": "every message over AMQP is confirmed; quality of service is MQTT's",
        "--retain": "AMQP retains no messages: append to a stream with --stream, or use mqtt://",
    },
    MQTT: {
        "--push": "MQTT has no queues: use amqp://, or let workers share a topic with "
        "penstock sub '$share/GROUP/TOPIC'",
        "--pull": "MQTT has no queues: use amqp://, or share a topic as '$share/GROUP/TOPIC'",
        "--stream": "MQTT has no streams: use amqp:// to append to one or to replay it",
        "--start": "MQTT cannot go back in time: replay a stream over amqp://",
    },
    PADRES: {
        "--push": "publications go to whoever wants them: use amqp:// for queues",
        "--pull": "publications go to whoever wants them: use amqp:// for queues",
        "--request": "PADRES has no requests: use amqp:// or mqtt://",
        "--reply": "PADRES has no requests: use amqp:// or mqtt://",
        "--stream": "replay the stream 'publications' over amqp://",
        "--start": "replay the stream 'publications' over amqp://",
        "--header": "what is said of a publication are its attributes: [class,stock],[price,45]",
        "--qos": "publications are confirmed when they are safe; quality of service is MQTT's",
        "--retain": "nothing is retained: replay the stream 'publications' over amqp://",
    },
}


def log_warnings_plainly() -> None:
    """Warnings of the client, such as a lost connection, as plain lines."""
    configure_logs(LogSettings(level="warning"))


def split_broker_url(words: Sequence[str], url: str, what: str) -> tuple[str, list[str]]:
    """The broker, which may be the first of the words, and the words that are left."""
    if words and "://" in words[0]:
        url, words = words[0], words[1:]
        if not words:
            raise typer.BadParameter(f"{url}: {what} is missing")
    return url, list(words)


def protocol_of(url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme in _PADRES_SCHEMES:
        return PADRES
    return MQTT if scheme in _MQTT_SCHEMES else AMQP


def reject_options(protocol: str, **given: bool) -> None:
    """An error for the first flag given that this protocol has no use for."""
    refusals = _UNSUPPORTED_OPTIONS[protocol]
    for name, on in given.items():
        if on and (reason := refusals.get(f"--{name}")) is not None:
            raise typer.BadParameter(f"--{name}: {reason}")


def require_topic(topic: str) -> None:
    _check(check_topic, topic)


def require_topic_filter(pattern: str) -> None:
    _check(check_filter, pattern)


def _check(check: Callable[[str], None], text: str) -> None:
    try:
        check(text)
    except PreconditionFailed as error:
        raise typer.BadParameter(str(error)) from error


def choose_flag(default: str, **flags: bool) -> str:
    """The one flag that was given, or the default."""
    given = [name for name, on in flags.items() if on]
    if len(given) > 1:
        raise typer.BadParameter("choose one of " + ", ".join(f"--{name}" for name in given))
    return given[0] if given else default


def choose_format(form: str | None, default: str, **flags: bool) -> str:
    """What `--format` says, or the one flag that says the same in short."""
    short = choose_flag(default, **flags)
    if form is not None and any(flags.values()) and short != form:
        raise typer.BadParameter(f"choose one of --format {form} and --{short}")
    return form or short


def parse_headers(pairs: Sequence[str], protocol: str = AMQP) -> dict[str, Any]:
    """`KEY=VALUE`s. Over AMQP a value that looks like a number is one; MQTT has texts, and a key
    may occur several times."""
    headers: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--header {pair!r} should be KEY=VALUE")
        if protocol == MQTT:
            headers.setdefault(key, []).append(value)
        else:
            headers[key] = int(value) if value.lstrip("-").isdecimal() else value
    return headers


# Flags that are a length of time: `90s`, `2h`, `30d`.


def parse_duration(text: str) -> float:
    try:
        found = parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from error
    if found <= 0:
        raise typer.BadParameter(f"{text!r} should be longer than nothing")
    return found
