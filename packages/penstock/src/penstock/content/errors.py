"""What can be wrong with a text in the content language, and where.

A `LanguageError` names the position of the mistake, what was expected there and what stands there
instead. It is a `PreconditionFailed`: every protocol has a code for it already.
"""

from __future__ import annotations

from penstock.core.errors import NotFound, PreconditionFailed

#: How much of the text an error quotes.
_QUOTED = 20


class LanguageError(PreconditionFailed):
    """A text that is not in the language."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.position = position  #: of the first character that is wrong, from 0
        self.problem = problem
        before = text[:position]
        self.line = before.count("\n") + 1
        self.column = position - before.rfind("\n")
        where = f"column {self.column}"
        if self.line > 1:
            where = f"line {self.line}, {where}"
        super().__init__(f"{where}: {problem}")


def expected(text: str, position: int, what: str) -> LanguageError:
    """The error for something else standing where `what` should."""
    rest = text[position : position + _QUOTED]
    found = f"'{rest}'" if rest else "the end"
    return LanguageError(text, position, f"expected {what}, found {found}")


class UnknownId(NotFound):
    """There is no subscription, advertisement or composite with this id."""


class DuplicateId(PreconditionFailed):
    """The id is taken."""
