"""Words for a process of our own, without secrets: everybody on a machine sees command lines.

A word that has a secret travels in the environment, which is its owner's alone; the command line
names the variable. `hide_secrets` is for who starts a process, `restore_secrets` for the process.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Final

from penstock.core.redaction import redact

_VARIABLE: Final = "PENSTOCK_ARGUMENT_"
_MARK: Final = "env:"


def hide_secrets(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words to show, and the variables that have the rest."""
    shown: list[str] = []
    variables: dict[str, str] = {}
    for word in words:
        if redact(word) != word:
            name = f"{_VARIABLE}{len(variables) + 1}"
            variables[name] = word
            word = _MARK + name
        shown.append(word)
    return shown, variables


def restore_secrets(words: Sequence[str], environ: MutableMapping[str, str]) -> list[str]:
    """The words as they were; the variables are taken, so that nobody inherits them."""
    return [
        environ.pop(word.removeprefix(_MARK), word) if word.startswith(_MARK + _VARIABLE) else word
        for word in words
    ]
