"""Makes a broker die in the middle of a commit: Python loads this by its name, at its start.

`DIES_AT` is the step of the first commit that answers a request at which it is killed: 0 is before
anything of it is done, then come the writes of the logs it touches, one by one, then the sync, then
the write of the acknowledgement, and at last the word to the client. Steps are written to the file
`DIES_LOG` as they are reached.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from penstock.broker.log.committer import Committer
from penstock.protocols.amqp091.handlers.tx import ChannelTransaction


class Death:
    def __init__(self, at: int, log: Path) -> None:
        self._left = at
        self._log = log
        self.near = False
        self.written = self.synced = False

    def step(self, name: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{name}\n")
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def prepare(death: Death) -> None:
    commit, write, end = ChannelTransaction.commit, Committer._write_touched, Committer._ended

    def dying_commit(transaction: ChannelTransaction, *answers: Any) -> None:
        if transaction._publishes and transaction._acknowledgements:
            death.near = True
            death.step("begun")
        commit(transaction, *answers)

    def dying_write(committer: Committer) -> bool:
        # Once the messages, and once the acknowledgement; others write meanwhile.
        if death.near and (committer._touched_lazily if death.synced else not death.written):
            for touched in (committer._touched, committer._touched_lazily):
                for log in list(touched):
                    death.step(f"before {type(log).__name__}")
                    log.write()
            death.step("written")
            death.written = True
            death.near = not death.synced
        return write(committer)

    def dying_end(committer: Committer, error: OSError | None) -> None:
        if death.near:
            death.step("synced")
            death.synced = True
        end(committer, error)

    ChannelTransaction.commit = dying_commit  # type: ignore[method-assign, assignment]
    Committer._write_touched = dying_write  # type: ignore[method-assign, assignment]
    Committer._ended = dying_end  # type: ignore[method-assign, assignment]


if "DIES_AT" in os.environ:
    prepare(Death(int(os.environ["DIES_AT"]), Path(os.environ["DIES_LOG"])))
