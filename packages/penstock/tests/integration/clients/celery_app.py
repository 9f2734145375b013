"""A Celery application for the tests: what its worker and beat processes load.

Everything comes from the environment, so that each test has queues of its own: `BROKER_URL`,
`QUEUE`, and `JOURNAL`, a file to which tasks write what a test wants to know.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any

# Celery says it is typed and is only half so; taken as it comes, mypy leaves it alone.
celery: Any = importlib.import_module("celery")
kombu: Any = importlib.import_module("kombu")

JOURNAL = Path(os.environ.get("JOURNAL", os.devnull))


def task_queue(name: str) -> Any:
    return kombu.Queue(
        name, kombu.Exchange(name, "direct"), name, queue_arguments={"x-max-priority": 10}
    )


def new_application(url: str, queue: str) -> Any:
    """The application as its workers see it, and as the test that sends tasks does."""
    application = celery.Celery(
        "penstock-tests", broker=url, backend="rpc://", set_as_current=False
    )
    application.conf.update(
        task_queues=[task_queue(queue)],
        task_default_queue=queue,
        task_default_exchange=queue,
        task_default_routing_key=queue,
        worker_prefetch_multiplier=1,
        result_expires=60,
        broker_connection_retry_on_startup=True,
        broker_heartbeat=10,
        beat_schedule={"tick": {"task": "tests.tick", "schedule": 0.3}},
    )
    return application


def note(line: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(f"{line}\n")


def add(left: int, right: int) -> int:
    return left + right


def note_down(line: str) -> None:
    note(line)


def tick() -> None:
    note("tick")


def when() -> float:
    return time.time()


def flaky(task: Any, failures: int) -> int:
    """Fails so many times, then tells how often it was retried."""
    if task.request.retries < failures:
        raise task.retry(countdown=0.1)
    retries: int = task.request.retries
    return retries


def wrong() -> None:
    raise ValueError("on purpose")


def hold(task: Any, until: str) -> bool:
    """Holds on until a file appears; acknowledged only when done. Was it delivered before?"""
    note("held")
    while not Path(until).exists():
        time.sleep(0.05)
    redelivered: bool = task.request.delivery_info["redelivered"]
    return redelivered


app = new_application(os.environ.get("BROKER_URL", ""), os.environ.get("QUEUE", "celery"))
for task in (add, note_down, tick, when, wrong):
    app.task(name=f"tests.{task.__name__}")(task)
app.task(name="tests.flaky", bind=True, max_retries=5)(flaky)
app.task(name="tests.hold", bind=True, acks_late=True)(hold)
