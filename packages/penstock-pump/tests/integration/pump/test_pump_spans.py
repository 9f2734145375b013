"""Spans of a file's way: announced, fetched, announced again, hop by hop."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_pump.components import post, sarra, subscribe
from tests.collector import SpanCollector
from tests.integration.pump.running import running, settings, until
from tests.peers import Penstock
from tests.pump.servers import serving


@pytest.mark.parametrize("form", ["v02", "v03"])
async def test_a_file_is_one_trace_over_all_hops(
    form: str, telemetry: SpanCollector, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there, pump, here = (tmp_path / each for each in ("there", "pump", "here"))
    there.mkdir()
    pump.mkdir()
    (there / "file").write_bytes(b"content")
    url, first, second = penstock.url, f"x{name}", f"x{name}s"
    prefixes = ["v02.post", "v03"]
    with serving(there) as source, serving(pump) as copy:
        pumps = settings(
            "sarra", url, tmp_path / "a", exchange=first, topic_prefix=prefixes,
            post_exchange=second, post_base_url=copy.url, post_base_dir=pump, post_format=form,
            directory=str(pump), queue=f"q_{name}.sarra",
        )  # fmt: skip
        fetches = settings(
            "subscribe", url, tmp_path / "s", exchange=second, topic_prefix=prefixes,
            directory=str(here), mirror=True,
        )  # fmt: skip
        posts = settings(
            "post", url, tmp_path / "p", post_exchange=first, post_base_url=source.url,
            post_base_dir=there, path=[there / "file"], post_format=form,
        )  # fmt: skip
        async with running(subscribe, fetches), running(sarra, pumps):
            await post(posts)
            await until((here / "file").exists)
    telemetry.flush()
    announced, again, _, _ = telemetry.wait_for(
        f"publish {first}", f"publish {second}", "process posts", "fetch"
    )
    sarra_span, subscribe_span = sorted(
        (span for span in telemetry.spans if span.name == "process posts"),
        key=lambda span: span.start,
    )
    fetched = [span for span in telemetry.spans if span.name == "fetch"]
    assert sarra_span.parent == announced.id
    assert again.parent == sarra_span.id
    assert subscribe_span.parent == again.id
    assert {span.parent for span in fetched} == {sarra_span.id, subscribe_span.id}
    assert [span for span in telemetry.spans if span.trace != announced.trace] == []
    assert sarra_span.attributes["penstock.outcome.code"] == 201
    assert f"{source.url}file" in {span.attributes["url.full"] for span in fetched}
