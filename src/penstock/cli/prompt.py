"""A prompt for people: with a history that lasts, and completion on demand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.core.config import data_home

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


def prompt_session(name: str, words: Iterable[str]) -> PromptSession[str]:
    """What was typed before is in a file by this name; the words can be completed."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    history = data_home() / f"{name}-history"
    history.parent.mkdir(parents=True, exist_ok=True)
    return PromptSession(
        history=FileHistory(str(history)),
        completer=WordCompleter(list(words), WORD=True),
        complete_while_typing=False,
    )
