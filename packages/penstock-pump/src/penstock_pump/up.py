"""The pump's part of `penstock up`: the demonstration with an inbox and its mirror."""

from __future__ import annotations

import os
from shlex import quote
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.cli.up.extension import BROKER, DATABASE, Extension, Lines, UpOptions
from penstock.cli.up.supervisor import Addresses, Part

PUMP: Final = "pump"
_INBOX: Final = "files put here appear in ../mirror"


def extend(options: UpOptions) -> Extension:
    def demo(found: Addresses) -> list[str]:
        return [*options.command("pump", "demo"), *options.amqp(found)]

    if not (options.pipeline and options.applications and options.demo):
        return Extension()
    return Extension([Part(PUMP, demo, [BROKER, DATABASE])], addresses=_folders)


def _folders(found: Addresses) -> Lines:
    return [(_path(url), _INBOX) for url in found.get(PUMP, ())]


def _path(url: str) -> str:
    """The path of a file URL, relative to the working directory and quoted for a shell."""
    path = unquote(urlsplit(url).path)
    near = os.path.relpath(path)
    return quote(path if near.startswith("..") else near)
