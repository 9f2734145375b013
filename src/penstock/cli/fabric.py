"""Flags and manners that `penstock pub` and `penstock sub` share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from penstock.core.config import LogSettings
from penstock.core.logs import configure

DEFAULT_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"

Url = Annotated[
    str,
    typer.Option("--url", metavar="URL", envvar="PENSTOCK_URL", help="The broker to talk to."),
]


def speak_plainly() -> None:
    """Our own warnings (a lost connection, a wait) as lines; the libraries' below them not."""
    configure(LogSettings(level="warning"))
    hush_libraries()


def hush_libraries() -> None:
    """What they would say of a broken connection, the client says itself."""
    for library in ("aiormq", "aio_pika"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def chosen(default: str, **flags: bool) -> str:
    """The one flag that was given, or the default."""
    given = [name for name, on in flags.items() if on]
    if len(given) > 1:
        raise typer.BadParameter("choose one of " + ", ".join(f"--{name}" for name in given))
    return given[0] if given else default


def parse_headers(pairs: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE`s, where a value that looks like a number is one."""
    headers: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--header {pair!r} should be KEY=VALUE")
        headers[key] = int(value) if value.lstrip("-").isdecimal() else value
    return headers
