"""Which scheme leads to which transport: one line each, imported and made when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from penstock.pump.errors import UnsupportedSource
from penstock.pump.transports.contract import Circumstances, NewTransport, Transport

GROUP: Final = "penstock.pump.transports"
SCHEMES: Final = {
    "file": "penstock.pump.transports.files:Files",
    "http": "penstock.pump.transports.http:Http",
    "https": "penstock.pump.transports.http:Http",
    "sftp": "penstock.pump.transports.sftp:Sftp",
    "ftp": "penstock.pump.transports.ftp:Ftp",
    "ftps": "penstock.pump.transports.ftp:Ftp",
}


class Transports:
    """The transports of one component; those given come before those there are."""

    def __init__(
        self, circumstances: Circumstances, given: Mapping[str, NewTransport] | None = None
    ) -> None:
        self._circumstances = circumstances
        self._given = dict(given or {})
        self._open: dict[str, Transport] = {}

    def get(self, scheme: str) -> Transport:
        found = self._open.get(scheme)
        if found is None:
            # Schemes of one kind, as http and https, share a transport and its connections.
            place = SCHEMES.get(scheme, scheme)
            found = self._open.get(place) or self._new(scheme)(self._circumstances)
            self._open[scheme] = found
            if scheme not in self._given:
                self._open[place] = found
        return found

    async def close(self) -> None:
        transports = {id(each): each for each in self._open.values()}
        self._open.clear()
        for transport in transports.values():
            await transport.close()

    def _new(self, scheme: str) -> NewTransport:
        if scheme in self._given:
            return self._given[scheme]
        if scheme in SCHEMES:
            module, _, name = SCHEMES[scheme].partition(":")
            new: NewTransport = getattr(import_module(module), name)
            return new
        for entry in entry_points(group=GROUP, name=scheme):
            loaded: NewTransport = entry.load()
            return loaded
        raise UnsupportedSource(f"no transport for {scheme}: URLs; there are {', '.join(SCHEMES)}")
