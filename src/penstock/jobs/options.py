"""How a job should be done, beside what: by headers, so that every form of request has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import PreconditionFailed

#: The first and three more: what fails by chance seldom fails four times.
ATTEMPTS: Final = 4
#: As many levels as the queues are declared with.
PRIORITIES: Final = 10

_ATTEMPTS: Final = "job-attempts"
_SOFT: Final = "job-soft"
_HARD: Final = "job-hard"


@dataclass(frozen=True, slots=True)
class Options:
    priority: int = 0  #: 0 to 9; the highest first
    attempts: int | None = None  #: at most so many, or as the worker has it
    soft: float | None = None  #: seconds after which it is asked to end
    hard: float | None = None  #: seconds after which it is ended

    def __post_init__(self) -> None:
        if not 0 <= self.priority < PRIORITIES:
            raise PreconditionFailed(f"priority {self.priority}: 0 to {PRIORITIES - 1} there are")
        if self.attempts is not None and not 1 <= self.attempts <= 100:
            raise PreconditionFailed(f"attempts {self.attempts}: 1 to 100 may be made")
        for limit in (self.soft, self.hard):
            if limit is not None and not 0 < limit < float("inf"):
                raise PreconditionFailed(f"a limit of {limit} seconds")


def write_options(options: Options) -> dict[str, Any]:
    """As headers; the priority is a property of its own."""
    headers: dict[str, Any] = {}
    if options.attempts is not None:
        headers[_ATTEMPTS] = options.attempts
    if options.soft is not None:
        headers[_SOFT] = str(options.soft)
    if options.hard is not None:
        headers[_HARD] = str(options.hard)
    return headers


def read_options(headers: Mapping[str, Any], priority: int | None = None) -> Options:
    """What cannot be read is an error: a limit that is ignored is worse than a refusal."""
    try:
        attempts, soft, hard = (headers.get(name) for name in (_ATTEMPTS, _SOFT, _HARD))
        return Options(
            min(priority or 0, PRIORITIES - 1),
            None if attempts is None else int(attempts),
            None if soft is None else float(soft),
            None if hard is None else float(hard),
        )
    except (TypeError, ValueError) as error:
        raise PreconditionFailed(f"options that cannot be read: {error}") from error
