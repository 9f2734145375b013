"""Fuzzes the columnar decoder of what sensors send.

    PYTHONPATH=. python packages/penstock-hives/tests/fuzz/fuzz_columns.py -runs=1000000

Coverage-guided, by atheris. An input is a batch of reports, each a length and the bytes. Each row
must be what the decoder of single reports reads, or rejected as it is there.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_hives.sensors"]):
    import pyarrow as pa

    from penstock.core.errors import PenstockError
    from penstock_hives.sensors.columnar import decode_reports
    from penstock_hives.sensors.protocol import FirmwareProfile
    from penstock_hives.sensors.protocol.report import decode_report
    from tests.fuzz_input import Choices, run_fuzzer

PROFILE = FirmwareProfile()


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    bodies = []
    while (size := choices.number(32)) or choices.number(2):
        bodies.append(choices.some(size))
    rows = decode_reports(pa.array(bodies, pa.binary())).to_pylist()
    assert len(rows) == len(bodies)
    for body, row in zip(bodies, rows, strict=True):
        try:
            report = decode_report(body, PROFILE)
        except PenstockError:
            assert row["reason"] is not None, body
        else:
            assert row["reason"] is None, body
            assert (row["total_in"], row["total_out"]) == (report.total_in, report.total_out)


if __name__ == "__main__":
    run_fuzzer(fuzz)
