"""Celery as its worker and its client see it: acknowledged late, one message ahead, no results."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.jobs import stamps, waits

app = Celery("bench", broker=os.environ["JOBS_BENCH_URL"])
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    task_default_queue="bench-celery",
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)


@app.task(name="stamp")  # type: ignore[untyped-decorator]
def stamp(number: int, sent: int) -> None:
    stamps.stamp(number, sent)


@app.task(name="wait", queue="bench-celery-waits")  # type: ignore[untyped-decorator]
def wait(number: int) -> None:
    waits.wait_blocking(number)
