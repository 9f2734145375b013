"""Arguments of child processes without secrets: all users of a machine can read command lines.

An argument with a secret is passed in the environment, which only its owner can read; the command
line names the variable. The parent calls `hide_secrets`, the child `restore_secrets`.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Final

from penstock.core.redaction import redact

_VARIABLE: Final = "PENSTOCK_ARGUMENT_"
_MARK: Final = "env:"


def hide_secrets(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words of the command line, and the variables."""
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
    """The original words; the variables are removed, so that no child inherits them."""
    return [
        environ.pop(word.removeprefix(_MARK), word) if word.startswith(_MARK + _VARIABLE) else word
        for word in words
    ]
