"""Parquet from an untrusted sender is checked before it is decoded, whatever its footer says."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_jobs.errors import JobFormatError
from penstock_jobs.science import model_file
from penstock_jobs.science.model_file import MAX_ROWS, read_table


def written(columns: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(pq.ParquetFile, "read", read)


@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"data_page_version": "2.0"}])
def test_what_our_writer_writes_is_read(options: dict[str, Any]) -> None:
    columns = {"name": ["a", "b", "a"] * 500, "value": [1.0, None, 3.5] * 500}
    table = read_table(written(columns, **options), ["name"])
    assert table["name"].cast(pa.string()).to_pylist() == columns["name"]
    assert table["value"].to_pylist() == columns["value"]
    assert pa.types.is_dictionary(table["name"].type), "a string that repeats is there once"


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("codec", ["gzip", "zstd", "brotli", "lz4"])
def test_codecs_of_any_ratio_are_refused(codec: str) -> None:
    with pytest.raises(JobFormatError, match="not accepted"):
        read_table(written({"name": ["x" * 10_000]}, compression=codec), [])


@pytest.mark.usefixtures("undecoded")
def test_many_rows_in_a_few_bytes_are_refused() -> None:
    data = written({"value": pa.array([0.0]).take(pa.array([0] * (MAX_ROWS + 1)))})
    assert len(data) < 10_000
    with pytest.raises(JobFormatError, match="100,001 rows; at most 100,000"):
        read_table(data, [])


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_encodings_that_multiply_are_refused(encoding: str) -> None:
    columns = {"name": ["x" * 1000] * 100}
    data = written(columns, use_dictionary=False, column_encoding={"name": encoding})
    with pytest.raises(JobFormatError, match="encoding that is not accepted"):
        read_table(data, [])


@pytest.mark.usefixtures("undecoded")
def test_pages_that_decompress_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written({"name": ["x" * 100_000] * 10}, use_dictionary=False)
    monkeypatch.setattr(model_file, "MAX_PAGE_BYTES", 1_000_000)
    with pytest.raises(JobFormatError, match="too many"):
        read_table(data, [])


@pytest.mark.usefixtures("undecoded")
def test_lists_and_other_types_are_refused() -> None:
    with pytest.raises(JobFormatError, match="INT64"):
        read_table(written({"value": [[1, 2]]}), [])


@pytest.mark.usefixtures("undecoded")
def test_a_page_that_has_more_than_the_footer_says_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = written({"value": [0.5] * 100}, use_dictionary=False, compression="none")
    monkeypatch.setattr(model_file, "MAX_ROWS", 1_000)
    hundred, eight_thousand = b"\x2c\x15\xc8\x01", b"\x2c\x15\x80\x7d"
    assert data.count(hundred) == 1
    with pytest.raises(JobFormatError, match=r"8,000 values in [0-9]+ bytes are too many"):
        read_table(data.replace(hundred, eight_thousand), [])


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b"\x15\x00\x15\x06\x15\xff\x01", "unreadable page"),  # a negative size
        (b"\x15\x00\x05\x02\x06", "ambiguous"),  # a field twice
        (b"\x1c" * 20, "ambiguous"),  # structures without end
        (b"\x15" + b"\xff" * 11, "endless number"),
        (b"\x17", "kind 7"),
    ],
)
def test_page_headers_that_make_no_sense_are_refused(header: bytes, told: str) -> None:
    data = header + b"\0" * 64
    with pytest.raises(JobFormatError, match=told):
        list(model_file._pages(data, 0, len(data)))
