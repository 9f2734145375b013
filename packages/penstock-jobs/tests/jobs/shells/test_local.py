"""Commands on this machine: what they print, how they end, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock_jobs.errors import CommandError
from penstock_jobs.shells.local import LocalFolder, LocalShell
from penstock_jobs.shells.shell import LINE_BYTES, OUTPUT_TAIL_BYTES, OutputTail
from penstock_jobs.worker.factory import WorkerPlan, _shell
from tests.jobs.shells.processes import alive, cancelled, script, until, until_gone


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[LocalShell]:
    opened = LocalShell(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def folder(shell: LocalShell) -> AsyncIterator[LocalFolder]:
    async with shell.folder() as opened:
        yield opened


def python(program: str) -> list[str]:
    return [sys.executable, "-u", "-c", textwrap.dedent(program)]


async def test_lines_are_told_as_they_come_and_kept(folder: LocalFolder) -> None:
    told: list[str] = []
    done = await folder.run(python("print('one'); print('two', end='')"), told.append)
    assert told == ["one", "two"]
    assert (done.status, done.output, done.errors, done.succeeded) == (0, "one\ntwo", "", True)


async def test_a_failure_has_its_status_and_what_it_said(folder: LocalFolder) -> None:
    done = await folder.run(python("import sys; sys.exit('no such luck')"))
    assert (done.status, done.errors, done.succeeded) == (1, "no such luck\n", False)


async def test_words_are_given_as_they_are(folder: LocalFolder) -> None:
    words = ["a b", "$HOME", "; rm -rf x", "*", "'", '"', "ä"]
    done = await folder.run([*python("import sys; print(sys.argv[1:])"), *words])
    assert done.output.strip() == str(words)


async def test_files_are_where_the_command_is(folder: LocalFolder) -> None:
    path = await folder.write("in/data.csv", b"1;2\n")
    program = "import sys, pathlib; pathlib.Path('out').write_text(open(sys.argv[1]).read() * 2)"
    assert (await folder.run([*python(program), path])).succeeded
    assert await folder.read("out") == b"1;2\n1;2\n"
    with pytest.raises(CommandError, match="none: No such file"):
        await folder.read("none")


async def test_the_folder_is_gone_when_the_work_is(shell: LocalShell) -> None:
    async with shell.folder() as folder:
        await folder.write("x", b"")
        place = Path(folder.path)
    assert not place.exists()


async def test_a_command_that_is_not_there_is_named(folder: LocalFolder) -> None:
    with pytest.raises(CommandError, match=r"cannot run '\./ichnaea': No such file"):
        await folder.run(["./ichnaea"])


async def test_a_command_that_is_cancelled_is_asked_to_end(folder: LocalFolder) -> None:
    program = "trap 'echo tidying; exit 3' TERM; echo begun; sleep 60 & wait"
    assert await cancelled(folder, script(program)) == ["begun", "tidying"]


async def test_a_command_that_does_not_end_when_asked_is_killed(folder: LocalFolder) -> None:
    program = "trap 'echo asked' TERM; echo $$; while true; do sleep 60 & wait; done"
    begun, asked = await cancelled(folder, script(program), kill="asked")
    assert asked == "asked"
    await until_gone(int(begun))


@pytest.mark.parametrize(("grace", "seconds"), [(0.2, 60), (None, 0.5)])
async def test_the_grace_of_a_shell_is_between_the_request_to_end_and_the_kill(
    tmp_path: Path, grace: float | None, seconds: float
) -> None:
    """A worker's shell has none: its time limits decide."""
    shell = LocalShell(tmp_path, grace=grace) if grace else _shell(WorkerPlan())
    program = f"trap 'sleep {seconds}; echo tidied; exit' TERM; echo begun; sleep 60 & wait"
    async with shell.folder() as folder:
        lines = await cancelled(folder, script(program))
    await shell.close()
    assert lines == (["begun"] if grace else ["begun", "tidied"])


async def test_what_a_command_has_started_ends_with_it(folder: LocalFolder) -> None:
    (begun,) = await cancelled(folder, script("sleep 60 & echo $!; wait"))
    await until_gone(int(begun))


async def test_what_a_command_leaves_behind_is_ended(folder: LocalFolder) -> None:
    done = await folder.run(script("sleep 60 & echo $!"))
    assert done.succeeded
    await until_gone(int(done.output))


async def test_cancelling_ends_the_command_first(folder: LocalFolder) -> None:
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    program = "import os, time; print(os.getpid()); time.sleep(60)"
    running = asyncio.create_task(
        folder.run(python(program), lambda line: begun.set_result(int(line)))
    )
    pid = await begun
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid)


async def test_a_flood_is_read_and_its_end_kept(folder: LocalFolder) -> None:
    lines = 0

    def count(_: str) -> None:
        nonlocal lines
        lines += 1

    program = "for n in range(200000): print('line', n)\nimport sys; sys.stderr.write('e' * 10**6)"
    done = await folder.run(python(program), count)
    assert lines == 200_000
    assert done.output.endswith("line 199999\n")
    assert len(done.output) < OUTPUT_TAIL_BYTES + 100
    assert "bytes before this]" in done.output.splitlines()[0]
    assert len(done.errors) < OUTPUT_TAIL_BYTES + LINE_BYTES


async def test_a_line_without_end_is_told_in_pieces(folder: LocalFolder) -> None:
    told: list[str] = []
    await folder.run(python("print('x' * 300000)"), told.append)
    assert "".join(told) == "x" * 300_000
    assert len(told) > 1


async def test_what_is_no_text_is_told_all_the_same(folder: LocalFolder) -> None:
    told: list[str] = []
    await folder.run(
        python(r"import sys; sys.stdout.buffer.write(b'\xff\xfe caf\xc3\xa9\n')"), told.append
    )
    assert told == ["\ufffd\ufffd café"]


async def test_nothing_is_left_when_the_worker_itself_is_killed(tmp_path: Path) -> None:
    worker = """
        import asyncio, sys
        from pathlib import Path
        from penstock_jobs.shells.local import LocalShell

        async def work():
            shell = LocalShell(Path(sys.argv[1]))
            async with shell.folder() as folder:
                print(folder.path)
                command = ["setsid", "--wait", "sh", "-c", "echo $$; exec sleep 60"]
                await folder.run(command, lambda line: print(line, flush=True))

        asyncio.run(work())
    """
    process = subprocess.Popen([*python(worker), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder, pid = Path(process.stdout.readline().strip()), int(process.stdout.readline())
    assert folder.exists()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    await until_gone(pid)
    await until(lambda: not folder.exists())


def test_what_is_kept_is_the_end() -> None:
    kept = OutputTail()
    for number in range(100_000):
        kept.add(f"{number}\n".encode())
    assert kept.text.endswith("99999\n")
    assert kept.text.startswith("[")


#: A daemon as they are written: a session of its own, no parent, no environment, closed outputs.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[1]))
"""


async def test_a_daemon_ends_with_the_command_that_started_it(folder: LocalFolder) -> None:
    done = await folder.run([*python(DAEMON), "0"])
    assert done.succeeded
    assert not alive(int(done.output))


async def test_a_daemon_ends_when_the_command_is_cancelled(folder: LocalFolder) -> None:
    (pid,) = await cancelled(folder, [*python(DAEMON), "600"])
    assert not alive(int(pid))


async def test_a_session_of_its_own_is_asked_to_end_as_well(folder: LocalFolder) -> None:
    inner = "trap 'echo tidying > tidy; exit' TERM; echo begun; sleep 60 & wait"
    program = f'setsid sh -c "{inner}" & wait'
    assert await cancelled(folder, script(program)) == ["begun"]
    assert await folder.read("tidy") == b"tidying\n"
