"""What can go wrong with jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import PenstockError


class JobFormatError(PenstockError):
    """A message is not a request or response, and this is where."""


class CommandError(PenstockError):
    """A command could not be run, or did not do what was asked."""


class JobFailed(PenstockError):
    """A piece of work did not come to a good end; says why, and whether it may the next time."""

    def __init__(self, text: str, *, again: bool = True) -> None:
        super().__init__(text)
        self.again = again


class JobTimeout(PenstockError, TimeoutError):
    """A piece of work that took longer than it may."""


class WorkNotPermitted(PenstockError):
    """A function or program that the worker was not told it may use."""


@dataclass(frozen=True, slots=True, order=True)
class DatasetProblem:
    """A cell that cannot be used: the row as a person counts, the names being the first."""

    row: int
    column: str
    text: str

    def __str__(self) -> str:
        place = ", ".join(
            part
            for part in (
                f"row {self.row}" if self.row else "",
                f"column {self.column}" if self.column else "",
            )
            if part
        )
        return f"{place}: {self.text}" if place else self.text


class DatasetError(PenstockError):
    """A data set that cannot be worked on, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[DatasetProblem]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(map(str, self.problems[:5]))
        more = len(self.problems) - 5
        super().__init__(f"{shown}; and {more} more" if more > 0 else shown)
