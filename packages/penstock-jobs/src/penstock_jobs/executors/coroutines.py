"""Coroutine functions, all on the event loop of the worker: for thousands of jobs that wait.

A function that blocks holds up the whole worker, so plain functions are refused: a worker without
`--async` runs them in processes.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from penstock_jobs.errors import JobFailed, JobTimeout, WorkNotPermitted
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.executors.functions import is_permitted
from penstock_jobs.model import FunctionCall
from penstock_jobs.pool.child import find_function
from penstock_jobs.shells.shell import TimeLimits


class CoroutineExecutor:
    """Implements `AsyncExecutor`; `allowed` as in `FunctionExecutor`."""

    types = ("call",)

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)
        self._functions: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {}

    async def close(self) -> None:
        """Nothing to close."""

    async def run(
        self, request: FunctionCall, limits: TimeLimits, listener: AttemptListener
    ) -> JobOutcome:
        function = self._functions.get(request.function) or self._find(request.function)
        keywords: dict[str, Any] = dict(request.keywords)
        if "progress" in inspect.signature(function).parameters:
            keywords["progress"] = _progress(listener)
        limit = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
        timeout = asyncio.timeout(limit)
        try:
            async with timeout:
                value = await function(*request.arguments, **keywords)
        except TimeoutError:
            if timeout.expired():
                raise JobTimeout(f"ended after {limit:g} seconds") from None
            raise
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise JobFailed(f"the returned value is no JSON: {error}", again=False) from error
        return JobOutcome(value=value)

    def _find(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if not is_permitted(name, self._allowed):
            raise WorkNotPermitted(f"the function {name} is not allowed on this worker")
        function = find_function(name, own_only=name not in self._allowed)
        if not inspect.iscoroutinefunction(function):
            raise WorkNotPermitted(f"{name} is no coroutine function, which this worker runs only")
        self._functions[name] = function
        return function


def _progress(listener: AttemptListener) -> Callable[..., None]:
    def progress(share: float, finish: datetime | None = None) -> None:
        listener.progress(min(max(float(share), 0.0), 1.0), finish)

    return progress
