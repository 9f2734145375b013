"""Errors of texts in the content language."""

from __future__ import annotations

from penstock.core.errors import NotFound, PreconditionFailed

_QUOTED = 20


class LanguageError(PreconditionFailed):
    """A syntax error: position, what was expected and what was found there."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.position = position  #: of the first wrong character, from 0
        self.problem = problem
        before = text[:position]
        self.line = before.count("\n") + 1
        self.column = position - before.rfind("\n")
        where = f"column {self.column}"
        if self.line > 1:
            where = f"line {self.line}, {where}"
        super().__init__(f"{where}: {problem}")


def expected(text: str, position: int, what: str) -> LanguageError:
    rest = text[position : position + _QUOTED]
    found = f"'{rest}'" if rest else "the end"
    return LanguageError(text, position, f"expected {what}, found {found}")


class UnknownId(NotFound):
    """No subscription, advertisement or composite has this id."""


class DuplicateId(PreconditionFailed):
    """The id is in use."""
