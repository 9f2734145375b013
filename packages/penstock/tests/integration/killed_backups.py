"""`python killed_backups.py URL DIR KEEP`: backups that end by SIGKILL, each at another point.

For each number N on standard input, a process backs up and kills itself before its Nth request,
new file, rename or removal. The answer is a line: whether it was killed, or the backup complete.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.client.backup import BackupRepository
from penstock.client.management import ManagementClient
from penstock.core.object_store import DirectoryStore


def kill_before(point: int, folder: str) -> None:
    passed = 0

    def count(event: str, values: tuple[Any, ...]) -> None:
        nonlocal passed
        match event:
            case "http.client.send":
                pass
            case "open" if values[2] & os.O_WRONLY and str(values[0]).startswith(folder):
                pass
            case "os.rename" | "os.remove" | "os.mkdir" if str(values[0]).startswith(folder):
                pass
            case _:
                return
        passed += 1
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main(url: str, folder: str, keep: int) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            kill_before(int(line), folder)
            repository = BackupRepository(DirectoryStore(Path(folder)))
            repository.take(ManagementClient(url, "guest", "guest"), keep)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        words = "complete" if status == 0 else "killed" if os.WIFSIGNALED(status) else "failed"
        sys.stdout.write(f"{words}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
