"""`python -m benchmarks.pump`: Penstock's pump beside sr3 and v2, over the same broker."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from benchmarks.harness import command
from benchmarks.harness.page import put_chapter
from benchmarks.harness.rounds import running
from benchmarks.peers import AMQP_STARTERS, Peer
from benchmarks.pump import report
from benchmarks.pump.grounds import Ground, make_tree, served
from benchmarks.pump.measuring import Run, measure_fetch, measure_post, measure_watch
from benchmarks.pump.programs import PROGRAMS, Feed, Program

TASKS: Final = ("post", "file", "http", "watch")
#: So many times as many are announced as are fetched: ours would be done before it had started.
_MORE: Final = 8
_METHOD: Final = (
    "Files of {size:,} bytes in 50 directories, on {place}. Every pump uses v02 with SHA-512 "
    "sums, persistent messages and one instance. The pumps alternate, and the table shows "
    "medians. sr3 syncs each file that it copies. Penstock syncs files and then their "
    "directories, many with one sync. v2 creates hard links for files on the same machine; it "
    "copies and syncs nothing. *post* is measured from the start of the command to its end, less "
    "the time for a single file. *file* and *http* are subscribers that start with a full queue, "
    "measured from the first file under its final name to the last; every byte is compared. "
    "*watch* is the time from a file's rename into the tree to the arrival of its post at a "
    "consumer, one file every 137 ms. CPU is the user and system time of the pump's processes. "
    "sr3-tuned has `batch 100`, `prefetch 200` and `sleep 0.001`: by default sr3 takes 25 "
    "messages per cycle and at most ten cycles per second. Nothing is deleted before the end, "
    "because ext4 creates files slowly where many were deleted in the last five minutes. Broker, "
    "file server and pumps share the machine, on which {load:.0f} other processes were running at "
    "the start. A ratio is Penstock's figure divided by the other's."
)


def main(
    tasks: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(TASKS)}.")] = "all",
    pumps: Annotated[str, typer.Option(help=f"Of {', '.join(PROGRAMS)}.")] = "all",
    brokers: Annotated[str, typer.Option(help="Comma-separated.")] = "penstock,rabbitmq",
    files: Annotated[
        int, typer.Option(min=10, help=f"To fetch; {_MORE} times as many to announce.")
    ] = 5000,
    size: Annotated[int, typer.Option(min=1, help="Of each file, in bytes.")] = 1024,
    seen: Annotated[int, typer.Option(min=10, help="Files a watch is to see.")] = 60,
    folder: Annotated[Path | None, typer.Option(help="Where all of it lies.")] = None,
    rounds: command.Rounds = 3,
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
) -> None:
    """Measure how fast files are announced, fetched and noticed, and what that costs."""
    wanted = command.names(tasks, TASKS, "--tasks")
    programs = [PROGRAMS[name] for name in command.names(pumps, list(PROGRAMS), "--pumps")]
    if quick:
        files, seen, rounds = 200, 10, 1
    results = command.new_results("benchmarks.pump")
    load, _, _ = os.getloadavg()
    found: dict[str, list[Run]] = {}
    with (
        TemporaryDirectory(prefix="penstock-bench-", dir=folder) as place,
        command.measuring() as announce,
    ):
        tree, forest = Path(place) / "tree", Path(place) / "forest"
        make_tree(tree, files, size)
        if "post" in wanted:
            make_tree(forest, files * _MORE, size)
        for name in command.names(brokers, list(AMQP_STARTERS), "--brokers"):
            with running(AMQP_STARTERS[name]) as broker, served(tree) as url:
                results.versions[broker.name] = broker.version
                runs = found[broker.name] = []
                for task in wanted:
                    for round_ in range(rounds):
                        for program in programs:
                            announce(f"{broker.name}: {task}, {program.name}, {round_ + 1}", 1)
                            base = url if task == "http" else "file:/"
                            count = {"watch": seen, "post": files * _MORE}.get(task, files)
                            feed = Feed(forest if task == "post" else tree, base)
                            runs.append(_run(task, program, broker, Path(place), feed, count))
    for program in programs:
        results.versions[program.name] = program.version
    for name, runs in found.items():
        report.show(name, runs)
    if json_file is not None:
        json_file.write_text(report.to_json(results, found))
    if markdown_file is not None:
        place_name = folder or "the system's disk"
        method = _METHOD.format(size=size, place=place_name, load=load)
        put_chapter(markdown_file, report.markdown(results, method, found))


def _run(task: str, program: Program, broker: Peer, place: Path, feed: Feed, files: int) -> Run:
    # What a run leaves behind goes at the very end: ext4 is slow to make files where many have just
    # been removed, so the next run would pay for it.
    ground = Ground.new(broker, place)
    if task == "post":
        return measure_post(program, ground, feed, files)
    if task == "watch":
        return measure_watch(program, ground, files)
    if task == "file":
        feed = Feed(feed.folder, "file:")
    return measure_fetch(task, program, ground, feed, files)


if __name__ == "__main__":
    typer.run(main)
