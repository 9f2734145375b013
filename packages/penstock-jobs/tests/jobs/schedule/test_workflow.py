"""Workflows as documents."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_jobs.errors import JobFormatError
from penstock_jobs.model import JobOptions
from penstock_jobs.schedule.repository import workflow_jobs
from penstock_jobs.schedule.workflow import fill, read_workflow

FAKE = {"type": "fake"}


def test_a_chain_runs_one_after_the_other() -> None:
    _, steps = read_workflow({"id": "c", "chain": [FAKE, FAKE, FAKE]})

    assert [(step.id, step.after) for step in steps] == [
        ("c.1", ()),
        ("c.2", ("c.1",)),
        ("c.3", ("c.2",)),
    ]


def test_a_group_is_joined() -> None:
    join = {"type": "call", "function": "a:b", "arguments": [{"$results": True}]}
    _, steps = read_workflow({"id": "g", "group": [FAKE, FAKE], "join": join})

    assert steps[-1].after == ("g.1", "g.2")
    filled = fill(steps[-1].request, str, lambda: [1, 2])
    assert filled["arguments"] == [[1, 2]]


def test_a_result_makes_its_step_come_first() -> None:
    predict = {"type": "predict_models", "models": {"$result": "build"}}
    steps = [{"id": "build", "request": {"type": "build_models"}}, {"id": "p", "request": predict}]
    jobs = workflow_jobs({"id": "w", "steps": steps}, JobOptions())

    assert jobs[1].after == ("w.build",)
    assert b'{"$result":"w.build"}' in jobs[1].body


@pytest.mark.parametrize(
    "document",
    [
        {"id": "w"},
        {"id": "w", "chain": [FAKE], "group": [FAKE]},
        {"id": "w", "chain": [FAKE], "join": FAKE},
        {"id": "w x", "chain": [FAKE]},
        {"id": "w", "chain": []},
        {"id": "w", "chain": [FAKE], "more": 1},
        {"id": "w", "steps": [{"id": "a", "after": ["b"], "request": FAKE}]},
        {"id": "w", "steps": [{"id": "a", "request": FAKE}, {"id": "a", "request": FAKE}]},
        {"id": "w", "steps": [{"id": "a", "request": FAKE, "when": "never"}]},
        {"id": "w", "chain": [{"type": "none"}]},
        {"id": "w", "chain": [{"type": "fake", "duration": -1}]},
    ],
)
def test_documents_that_are_no_workflow_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(JobFormatError):
        workflow_jobs(document, JobOptions())
