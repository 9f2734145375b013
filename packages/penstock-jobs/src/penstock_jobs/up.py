"""The part of `penstock up`: a job worker."""

from __future__ import annotations

from typing import Final

from penstock.cli.up.extension import BROKER, DATABASE, Extension, UpOptions
from penstock.cli.up.supervisor import Addresses, Part

JOBS: Final = "jobs"


def extend(options: UpOptions) -> Extension:
    def worker(addresses: Addresses) -> list[str]:
        words = options.bare_command("job", "worker", "--fork", "2", "--retry-seconds", "60")
        return [*words, *options.amqp_and_database(addresses)]

    if not (options.pipeline and options.applications):
        return Extension()
    return Extension([Part(JOBS, worker, [BROKER, DATABASE])])
