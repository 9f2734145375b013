"""Why a query ended, and whether starting it again may help.

What a flow raises is at hand. What the source, or a task, raises in a process of Spark's arrives as
a text with a traceback in it, of which the last line names the error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.core import errors
from penstock.pipeline.amqp.faults import passing as broker_passing
from penstock.pipeline.errors import DataLost
from penstock.store.errors import passing as store_passing

#: Trying again does not cure these: somebody has to do something.
_HOPELESS: Final[tuple[type[errors.PenstockError], ...]] = (
    errors.ConfigurationError,
    errors.AccessRefused,
    DataLost,
)
#: Errors of the network's, and of ours, that time may cure, as a traceback names them.
_PASSING: Final = frozenset(
    {
        "BrokenPipeError",
        "ConnectionAbortedError",
        "ConnectionForced",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "EOFError",
        "NotFound",  # a stream that nobody has declared yet
        "StoreConflict",
        "StoreTimeout",
        "StoreUnavailable",
        "TimeoutError",
        "gaierror",
    }
)
_LINE: Final = re.compile(r"^(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)


class QueryFailed(errors.PenstockError):
    """A flow's query ended, and starting it again did not help; says what Spark said."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason in a line, and what to make of it."""

    reason: str
    passing: bool  #: waiting may help
    hopeless: bool  #: nothing but a person will
    error: Exception  #: to be raised when there is nothing left to try


def explain(raised: Exception, cause: Exception | None) -> Fault:
    """`cause` is what applying the batch raised, if it was that."""
    if cause is not None and _sparks(cause):
        raised, cause = cause, None
    if cause is not None:
        known = broker_passing(cause) or store_passing(cause)
        reason = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        return Fault(_first_line(reason), known, isinstance(cause, _HOPELESS), cause)
    text = str(raised)
    named = {kind.__name__: kind for kind in _HOPELESS}
    told = [match.groups() for match in _LINE.finditer(text)]
    for name, words in reversed(told):
        if name in named:
            return Fault(words, False, True, named[name](words))
        if name in _PASSING:
            return Fault(f"{name}: {words}", True, False, QueryFailed(words))
    return Fault(_first_line(text), False, False, QueryFailed(text))


def _sparks(error: Exception) -> bool:
    """Whether it is Spark's telling of what happened in another process."""
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
