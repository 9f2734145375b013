"""Taskiq as its worker and its client see it, over aio-pika."""

from __future__ import annotations

import os

from taskiq_aio_pika import AioPikaBroker

from benchmarks.jobs import stamps, waits

broker = AioPikaBroker(os.environ["JOBS_BENCH_URL"], qos=waits.AT_ONCE)


@broker.task(task_name="stamp")
async def stamp(number: int, sent: int) -> None:
    stamps.stamp(number, sent)


@broker.task(task_name="wait")
async def wait(number: int) -> None:
    await waits.wait(number)
