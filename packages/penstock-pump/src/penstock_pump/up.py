"""The pump's part of `penstock up`: the demonstration with an inbox and its mirror."""

from __future__ import annotations

import os
from shlex import quote
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.cli.up.extension import BROKER, DATABASE, Extension, Lines, Shell, UpOptions
from penstock.cli.up.supervisor import Addresses, Part

PUMP: Final = "pump"
_INBOX: Final = "files put here appear in ../mirror"


def extend(options: UpOptions) -> Extension:
    def demo(found: Addresses) -> list[str]:
        return [*options.command("pump", "demo"), *options.amqp(found)]

    if not (options.pipeline and options.applications and options.demo):
        return Extension()

    def steps(shell: Shell) -> Lines:
        if PUMP not in shell.addresses:
            return ()
        folder = _near(str(options.data_dir / PUMP / "config"))
        url = shell.url("http")
        return (
            (f"{shell.penstock} pump status {folder}", "components, rates, retries"),
            (f"{shell.penstock} pump trace '*.csv'{url}{_data(options)}", "files, hop by hop"),
        )

    return Extension([Part(PUMP, demo, [BROKER, DATABASE])], addresses=_folders, steps=steps)


def _data(options: UpOptions) -> str:
    return "".join(f" {quote(word)}" for word in options.data)


def _folders(found: Addresses) -> Lines:
    return [(_path(url), _INBOX) for url in found.get(PUMP, ())]


def _path(url: str) -> str:
    """The path of a file URL, relative to the working directory and quoted for a shell."""
    return _near(unquote(urlsplit(url).path))


def _near(path: str) -> str:
    near = os.path.relpath(path)
    return quote(path if near.startswith("..") else near)
