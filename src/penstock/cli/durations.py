"""Flags that are a length of time: `90s`, `2h`, `30d`."""

from __future__ import annotations

import typer

from penstock.core.units import parse_seconds


def seconds(text: str) -> float:
    try:
        found = parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from error
    if found <= 0:
        raise typer.BadParameter(f"{text!r} should be longer than nothing")
    return found
