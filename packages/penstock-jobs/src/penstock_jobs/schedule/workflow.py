"""Workflows: jobs that start when others have ended, with their results.

    {"id": "river", "steps": [
        {"id": "build", "request": {"type": "build_models", …}},
        {"id": "predict", "after": ["build"],
         "request": {"type": "predict_models", "models": {"$result": "build"}, …}}]}

`chain` is a list of requests, one after the other; `group` a list of requests that run at the same
time, and `join` the request after them all. `{"$result": STEP}` becomes the models of a build, or
the value of another job; `{"$results": true}` the list of the results of all steps before. The job
of a step has the id `WORKFLOW.STEP`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_jobs.errors import JobFormatError

MAX_STEPS: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z0-9_~@:+-][A-Za-z0-9_~@:+-]{0,99}")
#: A step runs if those before are done; or when they have ended, whatever became of them.
_CONDITIONS: Final = ("done", "ended")


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    id: str  #: of its job
    request: Mapping[str, Any]  #: with the ids of jobs instead of steps
    after: tuple[str, ...] = ()  #: ids of jobs
    when: str = "done"


def read_workflow(document: Mapping[str, Any]) -> tuple[str, list[WorkflowStep]]:
    """The id and the steps, each after those it needs."""
    name = _name(document.get("id"), "id")
    unknown = set(document) - {"id", "steps", "chain", "group", "join"}
    if unknown:
        raise JobFormatError(f"unknown field {sorted(unknown)[0]!r}")
    forms = [each for each in ("steps", "chain", "group") if each in document]
    if len(forms) != 1 or ("join" in document and forms != ["group"]):
        raise JobFormatError("a workflow has steps, a chain, or a group with or without a join")
    plain = [_step(each, at) for at, each in enumerate(_plain_steps(document, forms[0]), 1)]
    if not 1 <= len(plain) <= MAX_STEPS:
        raise JobFormatError(f"a workflow has 1 to {MAX_STEPS:,} steps")
    known: set[str] = set()
    steps: list[WorkflowStep] = []
    for step in plain:
        needed = [*step.after, *_references(step.request)]
        for each in needed:
            if each not in known:
                raise JobFormatError(f"step {step.id!r} needs {each!r}, which is no step before it")
        if step.id in known:
            raise JobFormatError(f"two steps have the id {step.id!r}")
        known.add(step.id)
        jobs = {each: f"{name}.{each}" for each in known}
        identity = jobs[step.id]
        request = fill(step.request, lambda each, jobs=jobs: {"$result": jobs[each]})  # type: ignore[misc]
        after = tuple(dict.fromkeys(jobs[each] for each in needed))
        steps.append(WorkflowStep(identity, {**request, "id": identity}, after, step.when))
    return name, steps


def _plain_steps(document: Mapping[str, Any], form: str) -> list[Any]:
    given = document[form]
    if not isinstance(given, list):
        raise JobFormatError(f"{form}: must be a list")
    if form == "steps":
        return given
    names = [str(at) for at in range(1, len(given) + 1)]
    if form == "chain":
        return [
            {"id": name, "request": request, "after": names[at - 1 : at] if at else []}
            for at, (name, request) in enumerate(zip(names, given, strict=True))
        ]
    steps = [{"id": name, "request": request} for name, request in zip(names, given, strict=True)]
    if "join" in document:
        steps.append({"id": "join", "request": document["join"], "after": names})
    return steps


def _step(given: Any, at: int) -> WorkflowStep:
    if not isinstance(given, dict) or not isinstance(given.get("request"), dict):
        raise JobFormatError(f"step {at}: must have an id and a request")
    if unknown := set(given) - {"id", "request", "after", "when"}:
        raise JobFormatError(f"step {at}: unknown field {sorted(unknown)[0]!r}")
    after, when = given.get("after", []), given.get("when", "done")
    if not isinstance(after, list) or when not in _CONDITIONS:
        raise JobFormatError(f"step {at}: after must be a list, when one of done, ended")
    name = _name(given.get("id"), f"step {at}: id")
    return WorkflowStep(name, given["request"], tuple(map(str, after)), when)


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise JobFormatError(f"{what}: must be letters, digits and _~@:+-, at most 100")
    return value


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        if set(value) == {"$result"}:
            yield str(value["$result"])
        else:
            for each in value.values():
                yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def fill(value: Any, result: Callable[[str], Any], results: Callable[[], Any] | None = None) -> Any:
    """The value, with what replaces `$result` and `$results`."""
    if isinstance(value, dict):
        if set(value) == {"$result"}:
            return result(str(value["$result"]))
        if set(value) == {"$results"} and results is not None:
            return results()
        return {name: fill(each, result, results) for name, each in value.items()}
    if isinstance(value, list):
        return [fill(each, result, results) for each in value]
    return value


def write_template(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request, sort_keys=True, separators=(",", ":")).encode()
