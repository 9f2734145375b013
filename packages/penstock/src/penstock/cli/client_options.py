"""Options and rules that `penstock pub`, `sub` and `adv` share.

The broker is the first argument, as a URL, or `--url`. The scheme of the URL chooses the protocol.
An option that the protocol does not have is refused, with what to do instead.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from penstock.client.mqtt.topics import check_filter, check_topic
from penstock.client.url import BrokerProtocol
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
        help="Broker: amqp://, amqp+1.0://, mqtt://, ws:// or padres://, or with TLS.",
    ),
]

#: Headings of the help.
PATTERNS: Final = "Patterns"
ONLY_MQTT: Final = "MQTT only"

FormatJson = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
FormatHex = Annotated[bool, typer.Option("--hex", help="Same as --format hex.")]
FormatText = Annotated[bool, typer.Option("--text", help="Same as --format text.")]
Qos = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2,
        metavar="0|1|2",
        show_default=False,
        help="Quality of service. [default: 1]",
        rich_help_panel=ONLY_MQTT,
    ),
]

_AMQP: Final = {
    "--qos": "every message over AMQP is confirmed; quality of service is MQTT's",
    "--retain": "AMQP retains no messages: append to a stream with --stream, or use mqtt://",
}
_NO_QUEUES: Final = "publications go to all subscribers: use amqp:// for queues"
_NO_REQUESTS: Final = "PADRES has no requests: use amqp:// or mqtt://"
_REPLAY: Final = "replay the stream 'publications' over amqp://"
#: Options that a protocol does not have, and what to do instead.
_UNSUPPORTED_OPTIONS: Final = {
    BrokerProtocol.AMQP091: _AMQP,
    BrokerProtocol.AMQP10: _AMQP,
    BrokerProtocol.MQTT: {
        "--push": "MQTT has no queues: use amqp://, or let workers share a topic with "
        "penstock sub '$share/GROUP/TOPIC'",
        "--pull": "MQTT has no queues: use amqp://, or share a topic as '$share/GROUP/TOPIC'",
        "--stream": "MQTT has no streams: use amqp:// to append to one or to replay it",
        "--start": "MQTT has no replay: replay a stream over amqp://",
    },
    BrokerProtocol.PADRES: {
        "--push": _NO_QUEUES,
        "--pull": _NO_QUEUES,
        "--request": _NO_REQUESTS,
        "--reply": _NO_REQUESTS,
        "--stream": _REPLAY,
        "--start": _REPLAY,
        "--header": "a publication has attributes instead: [class,stock],[price,45]",
        "--qos": "every publication is confirmed; quality of service is MQTT's",
        "--retain": f"PADRES retains no publications: {_REPLAY}",
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


def reject_options(protocol: BrokerProtocol | None, **given: bool) -> None:
    """An error for the first option that the protocol does not have. An unknown protocol is the
    client's to refuse."""
    refusals = _UNSUPPORTED_OPTIONS[protocol] if protocol is not None else _AMQP
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
    """The one flag that is set, or the default."""
    given = [name for name, on in flags.items() if on]
    if len(given) > 1:
        raise typer.BadParameter("choose one of " + ", ".join(f"--{name}" for name in given))
    return given[0] if given else default


def choose_format(form: str | None, default: str, **flags: bool) -> str:
    """The value of `--format`, or of its short form."""
    short = choose_flag(default, **flags)
    if form is not None and any(flags.values()) and short != form:
        raise typer.BadParameter(f"choose one of --format {form} and --{short}")
    return form or short


def parse_headers(pairs: Sequence[str], protocol: BrokerProtocol | None) -> dict[str, Any]:
    """Of `KEY=VALUE`. Over AMQP numbers are integers; MQTT has strings, and repeated keys."""
    headers: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--header {pair!r} should be KEY=VALUE")
        if protocol is BrokerProtocol.MQTT:
            headers.setdefault(key, []).append(value)
        else:
            headers[key] = int(value) if value.lstrip("-").isdecimal() else value
    return headers


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `2h`, `30d`."""
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from error
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r} should be more than 0")
    return seconds


def text_or_base64(name: str, data: bytes) -> dict[str, str]:
    """A member of a JSON object; bytes that are not UTF-8 are base64 under another name."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
