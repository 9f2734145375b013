"""Why a query ended, and whether starting it again may help.

What a flow raises, or the engine before its query, is at hand. What the source, or a task, raises
in a process of Spark's arrives as a text with a traceback in it, whose last line names the error's
class: by that it is judged as if it were at hand.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from penstock.core import errors
from penstock.pipeline.errors import DataLost
from penstock.store.errors import passing as store_passing
from penstock.wire.amqp091.faults import passing as broker_passing

#: Trying again does not cure these: somebody has to do something.
_HOPELESS: Final = (errors.ConfigurationError, errors.AccessRefused, DataLost)
#: Spark gives a Python process ten seconds to start, and a machine may be too busy for that.
_BUSY: Final = "Python worker failed to connect back"
#: A line of a traceback that names an error of Python's or ours, and what it said.
_LINE: Final = re.compile(r"^(?:(penstock(?:\.\w+)+)\.)?([A-Za-z]\w+): (.+)$", re.MULTILINE)


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
    told = raised if cause is None else cause
    if not _sparks(told):
        return _judged(told, type(told), str(told), told)
    text = str(told)
    named = list(_named(text))
    if not named:
        return Fault(_first_line(text), _BUSY in text, False, QueryFailed(text))
    kind, words = named[-1]
    hopeless = issubclass(kind, _HOPELESS)
    return _judged(_blank(kind), kind, words, kind(words) if hopeless else QueryFailed(words))


def _judged(error: Exception, kind: type[Exception], words: str, final: Exception) -> Fault:
    # A stream that is not there may be declared yet.
    passes = broker_passing(error) or store_passing(error) or issubclass(kind, errors.NotFound)
    reason = f"{kind.__name__}: {words}" if words else kind.__name__
    return Fault(_first_line(reason), passes, issubclass(kind, _HOPELESS), final)


def _named(text: str) -> Iterator[tuple[type[Exception], str]]:
    """The errors a text names that are known here, with what they said."""
    for module, name, words in _LINE.findall(text):
        try:
            found = getattr(import_module(module) if module else builtins, name, None)
        except ImportError:
            continue
        if isinstance(found, type) and issubclass(found, Exception):
            yield found, words


def _blank(kind: type[Exception]) -> Exception:
    """One of that class, to be judged by; errors differ in what they are made of."""
    return kind.__new__(kind)


def _sparks(error: Exception) -> bool:
    """Whether it is Spark's telling of what happened in another process."""
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
