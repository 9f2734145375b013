"""The errors of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import PenstockError


class JobFormatError(PenstockError):
    """A message is not a valid request or response."""


class CommandError(PenstockError):
    """A command could not be run."""


class JobFailed(PenstockError):
    """A job failed; `again` tells whether a retry may succeed."""

    def __init__(self, text: str, *, again: bool = True) -> None:
        super().__init__(text)
        self.again = again


class JobTimeout(PenstockError, TimeoutError):
    """A job exceeded its time limit."""


class WorkNotPermitted(PenstockError):
    """A function or program that is not allowed on the worker."""


@dataclass(frozen=True, slots=True, order=True)
class DatasetProblem:
    """A cell that cannot be used; row 1 has the names of the columns."""

    row: int
    column: str
    text: str

    def __str__(self) -> str:
        position = ", ".join(
            part
            for part in (
                f"row {self.row}" if self.row else "",
                f"column {self.column}" if self.column else "",
            )
            if part
        )
        return f"{position}: {self.text}" if position else self.text


class DatasetError(PenstockError):
    """A data set that cannot be used, with all its problems."""

    def __init__(self, problems: Sequence[DatasetProblem]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(map(str, self.problems[:5]))
        more = len(self.problems) - 5
        super().__init__(f"{shown}; and {more} more" if more > 0 else shown)
