"""Runs a module until its arguments have been read: `python -m tests.pages.arguments MODULE …`.

Benchmarks and long tests take hours. Their pages are right if the programs accept the commands.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from typing import Any, NoReturn
from unittest.mock import patch

import typer.core

_parse = argparse.ArgumentParser.parse_args


def _end(*arguments: Any) -> NoReturn:
    sys.exit(0)


def _parse_and_end(parser: argparse.ArgumentParser, *arguments: Any) -> NoReturn:
    _parse(parser, *arguments)
    sys.exit(0)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    with (
        patch.object(typer.core.TyperCommand, "invoke", _end),
        patch.object(argparse.ArgumentParser, "parse_args", _parse_and_end),
    ):
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    sys.exit(f"{sys.argv[0]} reads no arguments")
