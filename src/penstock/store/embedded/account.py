"""Who runs the embedded server: whoever runs us, except that PostgreSQL refuses root.

For root there is a system user of its own, `pgserver`, made by `useradd` when it is missing. It
has no password, no shell and no home. The server's directory belongs to it.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from typing import Final, Self

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger

log = get_logger(__name__)

#: The name the wheel's own code would use too.
NAME: Final = "pgserver"


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group the server's processes and files belong to."""

    name: str
    uid: int
    gid: int

    @classmethod
    def of_this_process(cls) -> Self:
        uid = os.geteuid()
        entry = _system_user() if uid == 0 else pwd.getpwuid(uid)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @property
    def other(self) -> bool:
        """Whether it is not ours: programs have to be run as this user."""
        return os.geteuid() != self.uid


def _system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(NAME)
    except KeyError:
        pass
    log.info("adding a system user to run the embedded database", user=NAME)
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    try:
        subprocess.run(
            [*command, "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", NAME],
            check=True,
            capture_output=True,
            text=True,
        )
        return pwd.getpwnam(NAME)
    except (OSError, KeyError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or error
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and the user {NAME} could not be added: {reason}; "
            "run Penstock as another user, or give the URL of a PostgreSQL"
        ) from error
