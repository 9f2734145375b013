"""A real slapd on loopback, with users and groups."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.peers import Process, find_program, free_port

BASE = "dc=example,dc=org"
READER = f"cn=reader,{BASE}"

_ENTRIES = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

dn: {READER}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: read

dn: uid=ada,ou=people,{BASE}
objectClass: inetOrgPerson
uid: ada
cn: Ada Lovelace
sn: Lovelace
mail: ada@example.org
userPassword: secret

dn: uid=bob,ou=people,{BASE}
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Builder
mail: shared@example.org
userPassword: secret

dn: uid=eve,ou=people,{BASE}
objectClass: inetOrgPerson
uid: eve
cn: Eve
sn: Dropper
mail: shared@example.org
userPassword: secret

dn: cn=operators,ou=groups,{BASE}
objectClass: groupOfNames
cn: operators
member: uid=ada,ou=people,{BASE}

dn: cn=readers,ou=groups,{BASE}
objectClass: groupOfNames
cn: readers
member: uid=ada,ou=people,{BASE}
member: uid=bob,ou=people,{BASE}
"""


class Directory:
    def __init__(self, folder: Path, certificate: tuple[Path, Path]) -> None:
        self._program = find_program("slapd", "slapd")
        self._folder = folder
        self._certificate = certificate
        self.authority = certificate[0]
        self._ports = (free_port(), free_port())
        self.url = f"ldap://127.0.0.1:{self._ports[0]}"
        self.secure_url = f"ldaps://127.0.0.1:{self._ports[1]}"
        self._process: Process | None = None

    def start(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True)
        config = self._folder / "slapd.conf"
        schemas = (f"include /etc/ldap/schema/{name}.schema\n" for name in _SCHEMAS)
        config.write_text(
            "".join(schemas)
            + f"""\
pidfile {self._folder}/pid
TLSCertificateFile {self._certificate[0]}
TLSCertificateKeyFile {self._certificate[1]}
modulepath /usr/lib/ldap
moduleload back_mdb
access to attrs=userPassword by anonymous auth by * none
access to * by users read by * none
database mdb
suffix "{BASE}"
directory {data}
maxsize 10485760
"""
        )
        entries = self._folder / "entries.ldif"
        entries.write_text(_ENTRIES)
        subprocess.run(
            [self._program, "-T", "add", "-f", str(config), "-l", str(entries)],
            check=True,
            capture_output=True,
        )
        command = [self._program, "-d", "0", "-f", str(config)]
        command += ["-h", f"{self.url} {self.secure_url}"]
        self._process = Process(command, self._folder / "log", dict(os.environ))
        for port in self._ports:
            self._process.wait_for_port(port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGTERM)
            self._process = None


_SCHEMAS = ("core", "cosine", "inetorgperson")
