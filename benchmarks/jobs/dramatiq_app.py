"""Dramatiq as its worker and its client see it, with its own defaults."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.jobs import stamps, waits

broker = RabbitmqBroker(url=os.environ["JOBS_BENCH_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="bench-dramatiq")
def stamp(number: int, sent: int) -> None:
    stamps.stamp(number, sent)


@dramatiq.actor(queue_name="bench-dramatiq-waits")
def wait(number: int) -> None:
    waits.wait_blocking(number)
