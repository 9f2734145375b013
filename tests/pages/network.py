"""A network of a page's own, so that every server has its default port."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

#: Machines of the pages: addresses and names that lead to this one.
_PREPARE_NETWORK: Final = """\
PATH=$PATH:/usr/sbin
ip link set lo up
for each in 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.9; do ip address add $each/32 dev lo; done
names="broker.example b1.example.org db.example"
{ cat /etc/hosts; printf '127.0.0.1 localhost %s\\n' "$names"; } >"$HOSTS"
mount --bind "$HOSTS" /etc/hosts
exec "$@"
"""


def own_network() -> list[str]:
    """The words before a program that give it a network of its own, if that is possible."""
    if (
        shutil.which("unshare") is None
        or shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin") is None
    ):
        return []
    words = ["unshare", "--net", "--mount"]
    if os.geteuid():
        words.append("--map-root-user")
    works = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return [*words, "sh", "-ec", _PREPARE_NETWORK, "sh"] if works else []
