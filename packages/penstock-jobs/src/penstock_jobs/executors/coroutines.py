"""Coroutine functions, all on the event loop of the worker: for thousands of jobs that wait.

A function that blocks holds up the whole worker, so plain functions are refused: a worker without
`--async` runs them in processes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from penstock.core.errors import ConfigurationError
from penstock_jobs.errors import JobFailed, WorkNotPermitted
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.executors.functions import is_permitted
from penstock_jobs.model import FunctionCall
from penstock_jobs.pool.child import find_function

CoroutineFunction = Callable[..., Coroutine[Any, Any, Any]]


class CoroutineExecutor:
    """Implements `AsyncExecutor`; `allowed` as in `FunctionExecutor`."""

    types = ("call",)

    def __init__(self, allowed: Sequence[str]) -> None:
        """Imports the modules: later that would hold up the jobs that run."""
        self._allowed = tuple(allowed)
        for each in self._allowed:
            try:
                import_module(each.partition(":")[0])
            except (ImportError, ValueError) as error:
                raise ConfigurationError(f"--allow {each}: {error}") from error
        #: With whether they take `progress`.
        self._functions: dict[str, tuple[CoroutineFunction, bool]] = {}

    async def close(self) -> None:
        """Nothing to close."""

    async def run(self, request: FunctionCall, listener: AttemptListener) -> JobOutcome:
        found = self._functions.get(request.function) or self._find(request.function)
        function, takes_progress = found
        keywords: dict[str, Any] = dict(request.keywords)
        if takes_progress:
            keywords["progress"] = _progress(listener)
        value = await function(*request.arguments, **keywords)
        if value is None:
            return JobOutcome()
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise JobFailed(f"the returned value is no JSON: {error}", again=False) from error
        return JobOutcome(value=value)

    def _find(self, name: str) -> tuple[CoroutineFunction, bool]:
        if not is_permitted(name, self._allowed):
            raise WorkNotPermitted(f"the function {name} is not allowed on this worker")
        function = find_function(name, own_only=name not in self._allowed)
        if not inspect.iscoroutinefunction(function):
            raise WorkNotPermitted(f"{name} is no coroutine function, which this worker runs only")
        takes_progress = "progress" in inspect.signature(function).parameters
        found = self._functions[name] = function, takes_progress
        return found


def _progress(listener: AttemptListener) -> Callable[..., None]:
    def progress(share: float, finish: datetime | None = None) -> None:
        listener.progress(min(max(float(share), 0.0), 1.0), finish)

    return progress
