"""`python -m benchmarks.jobs`: the queue beside Celery, Dramatiq and Taskiq; source tracking on
Spark."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer
from pyspark import __version__ as spark_version

from benchmarks.harness import command
from benchmarks.harness.page import put_chapter
from benchmarks.harness.results import Results
from benchmarks.harness.rounds import Announce
from benchmarks.jobs import measuring, report, science, waits
from benchmarks.jobs.queues import QUEUES, URL, JobQueue
from benchmarks.jobs.report import Figures
from benchmarks.peers import AMQP_STARTERS, Peer

_SCENARIOS: Final = ("drain", "latency", "waits", "build", "judge", "predict")
_JOBS: Final = {"penstock": 40_000, "dramatiq": 20_000, "taskiq": 6_000, "celery": 6_000}
_LATENCY_JOBS: Final = 1_000
_WAITING_JOBS: Final = 5_000
_QUICK_JOBS: Final = 300
#: Of 14 cells by 30 classifiers: 25 searches, in all cells and with 25 classifiers, in minutes.
_SAMPLE: Final = 17
_SAMPLES: Final = (100_000, 1_000_000, 10_000_000)
_METHOD: Final = (
    "A job writes the times at which it was sent and started (24 bytes) to a file, and does "
    "nothing else. All queues have two worker processes and persistent messages, and acknowledge "
    "after the work: Celery with `acks_late` and a prefetch of one, Dramatiq with two processes "
    "of one thread, Taskiq with two processes of 100 coroutines, Penstock with `--fork 2`, which "
    "also sends a response for each job. Each queue uses its own client; only Taskiq's waits for "
    "publisher confirms, outside of what is timed. RabbitMQ is the same for "
    "all. The backlog exists before the workers start; timing starts when a tenth of the jobs has "
    "started. `÷` is the first row's rate divided by the row's. Latency is measured from before "
    "the send to the job's first line, one job every 10 ms. A job that waits sleeps for a second: "
    "five thousand are queued, and a worker may run a thousand at once, so five seconds are the "
    "least; Penstock and Taskiq with two processes of 500 coroutines, Dramatiq with two of 500 "
    "threads, Celery with one of 1,000 greenlets. Each figure is the median of several "
    "rounds in which the queues alternate. The benchmark checks that each job ran once. A build "
    "searches with each classifier in each cell of age and season, 4,500 fits per search, on "
    "`local[1]` and `local[2]` in a warm session, or does a part of these searches, as the table "
    "states. Its efficiency is given by the clock and by CPU seconds, which do not depend on "
    "other load. Samples are simulated, corrected and voted on in three ways. CPU seconds are "
    "those of Java, its Python workers and this process. The load average at the start was "
    "{load}."
)


def main(
    scenario: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(_SCENARIOS)}; or all.")
    ] = "all",
    peers: command.Peers = "penstock,dramatiq,taskiq,celery",
    rounds_: command.Rounds = 3,
    jobs: Annotated[int, typer.Option(min=0, help="Of a backlog; 0: as many as it takes.")] = 0,
    cells: Annotated[int, typer.Option(min=1, max=14, help="Of a build.")] = 14,
    classifiers: Annotated[str, typer.Option(help="Of a build, comma-separated; or all.")] = "all",
    every: Annotated[
        int, typer.Option(min=1, help="Of a build's searches, one in so many; 17 takes minutes.")
    ] = 1,
    most_samples: Annotated[int, typer.Option(min=1, help="The most that are judged.")] = 10**7,
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
) -> None:
    """Measure how fast jobs are worked off, how soon they begin, and what the science costs."""
    wanted = command.names(scenario, _SCENARIOS, "--scenario")
    queues = [QUEUES[name] for name in command.names(peers, list(QUEUES), "--peers")]
    if quick:
        rounds_, jobs, every = 1, jobs or _QUICK_JOBS, max(every, _SAMPLE)
    load = f"{os.getloadavg()[0]:.1f}"
    results, figures = command.new_results("benchmarks.jobs"), Figures()
    with command.measuring() as announce:
        if {"drain", "latency", "waits"} & set(wanted):
            _queues(results, figures, wanted, queues, rounds_, jobs, announce)
        if "build" in wanted:
            chosen = command.names(classifiers, science.CLASSIFIERS, "--classifiers")
            figures.builds += science.builds(cells, chosen, every, (1, 2))
        if "judge" in wanted:
            counts = [count for count in _SAMPLES if count <= most_samples]
            figures.judged += science.judged(counts or [most_samples], 2)
        if "predict" in wanted:
            figures.small.append(science.small(2 if quick else 15, 2))
    results.versions["Spark"] = spark_version
    report.show(figures)
    if json_file is not None:
        json_file.write_text(figures.to_json())
    if markdown_file is not None:
        put_chapter(markdown_file, report.chapter(results, _METHOD.format(load=load), figures))


def _queues(
    results: Results,
    figures: Figures,
    wanted: list[str],
    queues: list[JobQueue],
    rounds: int,
    jobs: int,
    announce: Announce,
) -> None:
    """All on RabbitMQ, and Penstock's on Penstock as well."""
    shown = QUEUES.values() if "waits" in wanted else queues
    results.versions |= {queue.name: queue.version for queue in shown}
    places = [("rabbitmq", queues)]
    if any(queue.name == "penstock" for queue in queues):
        places.append(("penstock", [QUEUES["penstock"]]))
    for name, chosen in places:
        with TemporaryDirectory(prefix="penstock-bench-") as folder:
            with closing(AMQP_STARTERS[name](Path(folder))) as broker:
                results.versions[broker.name] = broker.version
                _on(broker, figures, wanted, chosen, rounds, jobs, announce)
                if "waits" in wanted and name == "rabbitmq":
                    _waits(broker, figures, rounds, jobs)


def _waits(broker: Peer, figures: Figures, rounds: int, jobs: int) -> None:
    url = os.environ[URL] = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    for _ in range(rounds):
        for queue in waits.WAIT_QUEUES:
            figures.waits.append(waits.measure(queue, url, jobs or _WAITING_JOBS))


def _on(
    broker: Peer,
    figures: Figures,
    wanted: list[str],
    queues: list[JobQueue],
    rounds: int,
    jobs: int,
    announce: Announce,
) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    os.environ[URL] = url  # where the clients of the others find it when they are loaded
    advance = announce(f"jobs on {broker.name}", rounds * len(queues))
    for step in range(rounds * len(queues)):
        queue = queues[step % len(queues)]
        if "drain" in wanted:
            count = jobs or _JOBS[queue.name]
            figures.drains.append(measuring.drain(queue, broker, url, count))
        if "latency" in wanted:
            count = min(jobs or _LATENCY_JOBS, _LATENCY_JOBS)
            figures.latencies.append(measuring.latency(queue, broker, url, count))
        advance(step + 1)


if __name__ == "__main__":
    typer.run(main)
