"""A member of a cluster: its name, the cluster's id, and the newest epoch that it has seen.

They are in `cluster.json` of the data directory. The name has a random part and belongs to the
data: a member that lost its disk is another member, and cannot lead with nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Final, Self

from penstock.core.config import BrokerSettings
from penstock.core.data_directory import private_opener
from penstock.core.errors import AuthenticationFailed, ConfigurationError

FILE_NAME: Final = "cluster.json"
#: Of the file.
VERSION: Final = 1


class Member:
    def __init__(
        self,
        path: Path,
        node: str,
        cluster: str = "",
        epoch: int = 0,
        copying: bool = False,
        is_leader: bool = False,
        url: str = "",
        secret: str = "",
        leader: str = "",
    ) -> None:
        self._path = path
        self.node = node
        self.cluster = cluster  #: its id; empty until the first contact
        self.epoch = epoch
        self.copying = copying  #: the data is an incomplete copy, which must not lead
        self.is_leader = is_leader  #: by hand
        self.url = url  #: where it joined, for starts without --cluster or --follow
        self.secret = secret
        self.leader = leader  #: of the epoch; empty if it is not known

    @classmethod
    def load(cls, data: Path, name: str = "", secret: str = "") -> Self:
        """The member of a data directory; a new one if there is none."""
        path = data / FILE_NAME
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            prefix = name or socket.gethostname().split(".")[0] or "node"
            return cls(path, f"{prefix}-{secrets.token_hex(3)}", secret=secret)
        except ValueError as error:
            raise ConfigurationError(f"{path}: not a JSON document: {error}") from None
        if found.get("version") != VERSION:
            raise ConfigurationError(
                f"{path}: version {found.get('version')!r} is not {VERSION}: start the version of "
                "Penstock that wrote it, or give this member an empty directory (--data)"
            )
        return cls(
            path,
            found["node"],
            found["cluster"],
            int(found["epoch"]),
            bool(found["copying"]),
            bool(found["is_leader"]),
            found["url"],
            secret,
            found.get("leader", ""),
        )

    @property
    def is_new(self) -> bool:
        return not self.cluster

    def join(self, cluster: str) -> None:
        """The cluster's data is here from now on."""
        if self.cluster not in ("", cluster):
            raise ConfigurationError(
                f"{self._path.parent} has the data of cluster {self.cluster}, not of {cluster}: "
                "give this member an empty directory (--data), or name its own cluster"
            )
        if self.cluster != cluster:
            if (self._path.parent / "log" / "topology.jsonl").exists():
                raise ConfigurationError(
                    f"{self._path.parent} has the data of a broker that is in no cluster; a "
                    "follower would delete it: give this member an empty directory (--data)"
                )
            self.cluster = cluster
            self.save()

    def found(self, cluster: str) -> None:
        """This member's data is that of a new cluster."""
        self.cluster = cluster
        self.save()

    def saw(self, epoch: int, leader: str) -> None:
        """Frames of older epochs, and of another leader, are refused from now on, also after a
        restart."""
        if epoch == self.epoch and self.leader not in ("", leader):
            raise AuthenticationFailed(
                f"{self.leader} and {leader} both lead in epoch {epoch}, promoted by hand: stop "
                f"{leader}, give it an empty directory (--data), and let it --follow {self.leader}"
            )
        if epoch > self.epoch or (epoch == self.epoch and not self.leader):
            self.epoch, self.leader = epoch, leader
            self.save()

    def set_copying(self, copying: bool) -> None:
        if copying != self.copying:
            self.copying = copying
            self.save()

    def set_leader(self, is_leader: bool) -> None:
        if is_leader != self.is_leader:
            self.is_leader = is_leader
            self.save()

    def save(self) -> None:
        document = {
            "version": VERSION,
            "node": self.node,
            "cluster": self.cluster,
            "epoch": self.epoch,
            "leader": self.leader,
            "copying": self.copying,
            "is_leader": self.is_leader,
            "url": self.url,
        }
        draft = self._path.with_name(FILE_NAME + ".new")
        with open(draft, "wb", opener=private_opener) as file:
            file.write(json.dumps(document, indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def forget(self) -> None:
        """Leave the cluster; the data stays."""
        self._path.unlink(missing_ok=True)


def with_remembered_cluster(settings: BrokerSettings, data: Path) -> BrokerSettings:
    """The settings, with the cluster that the data directory joined, unless they name one."""
    if settings.cluster.enabled or not (data / FILE_NAME).exists():
        return settings
    url = Member.load(data).url
    if not url:
        return settings
    if url.startswith("penstock"):
        cluster = dataclasses.replace(settings.cluster, follow=url)
    else:
        cluster = dataclasses.replace(settings.cluster, url=url)
    return dataclasses.replace(settings, cluster=cluster)
