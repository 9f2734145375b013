"""Every command, program and file of the documentation does what its page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.pages.page import PAGES, RUN, blocks, plans
from tests.pages.page_runner import commands, own_network, pattern
from tests.paths import ROOT

PLANS = plans()
GROUPS = sorted({(plan.group, plan.is_slow) for plan in PLANS.values() if not plan.skip})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs_or_has_a_reason(page: Path) -> None:
    plan = PLANS[page]
    found = list(blocks(page))
    unknown = [
        f"{page.name}:{block.line}: neither runs nor has a reason in tests/pages/blocks.toml"
        for block in found
        if block.language not in RUN
        and not block.is_output
        and not plan.reason(block)
        # The text of a file that commands use.
        and "." not in block.title
    ]
    assert not unknown
    unused = [each for each in plan.not_run if not any(b.text.startswith(each) for b in found)]
    assert not unused, "reasons for blocks that the page does not have"
    for reason in [plan.skip, *plan.not_run.values()]:
        for word in reason.split():
            assert "/" not in word or word.startswith("/") or (ROOT / word).exists(), word


@pytest.mark.peer
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=pytest.mark.slow) if is_slow else group
        for group, is_slow in GROUPS
    ],
)
def test_pages_print_what_they_say(group: str) -> None:
    network = own_network()
    if not network:
        pytest.skip("default ports need a network namespace: unshare and ip")
    pages = [page for page, plan in PLANS.items() if plan.group == group and not plan.skip]
    with TemporaryDirectory(prefix="penstock-pages-") as folder:
        Path(folder).chmod(0o755)  # the embedded PostgreSQL may run as another user
        done = subprocess.run(
            [*network, sys.executable, "-m", "tests.pages.page_runner", folder, *pages],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=580,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ran in ") == len(pages), done.stdout


def test_commands_are_told_from_their_output() -> None:
    text = "$ one \\\n  more\nout\n$ cat <<'END'\ntext\nEND\n$ two '\n  a'\na\n\nb\n"
    assert list(commands(text)) == [
        ("one \\\n  more", "out"),
        ("cat <<'END'\ntext\nEND", ""),
        ("two '\n  a'", "a\n\nb"),
    ]
    assert pattern("1 of … (all)") == r"1\ of\ .*\ \(all\)"
