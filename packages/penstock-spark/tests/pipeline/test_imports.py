"""What a worker has to load."""

from __future__ import annotations

import subprocess
import sys


def test_the_connector_loads_nothing_of_the_broker() -> None:
    program = (
        "import sys, penstock_spark\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('penstock.')}\n"
        "assert rooms <= {'pipeline', 'client', 'wire', 'core'}, rooms\n"
        "assert not {'pandas', 'aio_pika', 'asyncpg', 'h11'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
