"""MQTT as one broker speaks it: what its connections share."""

from __future__ import annotations

import asyncio

from penstock.broker.host import Host
from penstock.broker.vhost import VirtualHost
from penstock.terminals.mqtt.press import Press
from penstock.terminals.mqtt.sessions import Sessions
from penstock.terminals.mqtt.sys_topics import SysTopics
from penstock.terminals.mqtt.terminal import MqttTerminal


class Mqtt:
    __slots__ = ("_sessions", "_sys", "headers", "host", "press")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.press = Press()
        self.headers: dict[int, bytes] = {}  #: of publications without properties, by size
        self._sessions: dict[str, Sessions] = {}
        for vhost in host.vhosts.values():
            self.sessions(vhost)
        self._sys = SysTopics(host, self._sessions)
        self._sys.start()

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return MqttTerminal(self)

    def sessions(self, vhost: VirtualHost) -> Sessions:
        found = self._sessions.get(vhost.name)
        if found is None or found.vhost is not vhost:  # another may have had its name
            if found is not None:
                found.close()
            found = self._sessions[vhost.name] = Sessions(vhost, self.host.users)
        return found

    def close(self) -> None:
        self._sys.stop()
        for sessions in self._sessions.values():
            sessions.close()
