"""What the pump adds to `penstock up`: a demonstration with an inbox and its mirror."""

from __future__ import annotations

import os
from shlex import quote
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.cli.up.extension import BROKER, DATABASE, Extension, Lines, UpOptions
from penstock.cli.up.supervisor import Addresses, Part

PUMP: Final = "pump"
_INBOX: Final = "drop a file in: it comes out in ../mirror"


def extend(options: UpOptions) -> Extension:
    def demo(found: Addresses) -> list[str]:
        return [*options.command("pump", "demo"), *options.amqp(found)]

    if not (options.pipeline and options.applications and options.demo):
        return Extension()
    return Extension([Part(PUMP, demo, [BROKER, DATABASE])], addresses=_folders)


def _folders(found: Addresses) -> Lines:
    return [(_path(url), _INBOX) for url in found.get(PUMP, ())]


def _path(url: str) -> str:
    """The path of a file URL, as a shell takes it from the working directory."""
    path = unquote(urlsplit(url).path)
    near = os.path.relpath(path)
    return quote(path if near.startswith("..") else near)
