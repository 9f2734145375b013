"""`amqps+1.0://`: the certificate is checked, against the authority one names."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client import BrokerUnreachable, connect
from tests.client.test_tls import write_certificate
from tests.fixtures import NewPenstock
from tests.peers import free_port


async def test_a_certificate_is_checked(
    new_penstock: NewPenstock, tmp_path: Path, name: str
) -> None:
    certificate, key = write_certificate(tmp_path)
    port = free_port()
    new_penstock(
        *("--listen", f"amqps://127.0.0.1:{port}"),
        *("--set", f"broker.tls.certificate={certificate}"),
        *("--set", f"broker.tls.key={key}"),
    )
    url = f"amqps+1.0://guest:guest@127.0.0.1:{port}/"
    async with connect(f"{url}?cafile={certificate}") as fabric:
        await fabric.push(name).send(b"sealed")
        async with fabric.pull(name) as items:
            assert (await items.receive()).body == b"sealed"
    with pytest.raises(BrokerUnreachable, match=r"certificate not trusted.*cafile"):
        await connect(url).open()
