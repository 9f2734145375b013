"""What other brokers may do here: which may link, and what a neighbour may publish.

A neighbour routes: it advertises, subscribes and publishes for its clients, and it sees what it
subscribes to. It does not control this broker. Commands pass from the neighbours that
`accept_commands_from` names, and end here from all others: a broker further on trusts this one to
have checked. No command from a neighbour makes this broker dial an address that its own settings do
not have.
"""

from __future__ import annotations

from typing import Final

from penstock.content.messages import Publication
from penstock.core.config import OverlaySettings
from penstock.core.errors import AccessRefused
from penstock.overlay.errors import LinkRefused
from penstock.overlay.uris import parse_uri

#: Publications of these classes are commands to brokers.
COMMANDS: Final = frozenset({"BROKER_CONTROL", "BROKER_MONITOR", "GLOBAL_FD"})
_HEARTBEAT: Final = "HEARTBEAT_MANAGER"


class PeerPolicy:
    def __init__(self, settings: OverlaySettings) -> None:
        self._me = settings.id
        self._links = frozenset(settings.accept_links_from)
        self._commands = frozenset(settings.accept_commands_from)
        self._addresses = {_canonical(one) for one in settings.neighbours}

    def check_link(self, peer: str, dialled: bool) -> None:
        """Whether a broker may connect; one that we dial ourselves may."""
        if not dialled and peer not in self._links:
            raise AccessRefused(
                f"broker {peer} is not configured at {self._me}: add it to "
                "broker.overlay.accept_links_from there"
            )

    def check_publication(self, peer: str, publication: Publication) -> None:
        name, said = publication.class_name, publication.attributes
        if name in COMMANDS and peer not in self._commands:
            raise AccessRefused(
                f"broker {self._me} takes no {name} from {peer}: add it to "
                "broker.overlay.accept_commands_from"
            )
        if name == _HEARTBEAT and said.get("fromID", peer) != peer:
            raise AccessRefused(f"{peer} sends heartbeats of {said['fromID']}")
        if (
            name == "BROKER_CONTROL"
            and said.get("command") == "OVERLAY-CONNECT"
            and said.get("brokerID") == self._me
            and _canonical(str(said.get("broker", ""))) not in self._addresses
        ):
            raise AccessRefused(
                f"{peer} names an address that is not in broker.overlay.neighbours: give the "
                f"command to {self._me} itself"
            )


def _canonical(address: str) -> str:
    try:
        return str(parse_uri(address))
    except LinkRefused:
        return address
