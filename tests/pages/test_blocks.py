"""Every command, program and file of the documentation does what its page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.pages.network import own_network
from tests.pages.outputs import commands, pattern
from tests.pages.page import PAGES, RUN, TEXT, blocks, plans
from tests.paths import ROOT

PLANS = plans()
GROUPS = sorted({(plan.group, slow) for plan in PLANS.values() for slow in plan.runs})


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
        and not plan.is_parsed(block)
        # The text of a file that commands use.
        and "." not in block.title
    ]
    assert not unknown
    programs = [block.line for block in found if block.language not in TEXT | {"console"}]
    shown = [block.line for block in found if block.text.startswith(tuple(plan.shown))]
    assert not set(programs) & set(shown), "programs and files are run or read"
    not_run = [*plan.run_by, *plan.shown, *plan.impossible]
    beginnings = [*not_run, *plan.parsed, *plan.slow]
    unused = [each for each in beginnings if not any(b.text.startswith(each) for b in found)]
    assert not unused, "blocks that the page does not have"
    for test in [
        plan.generated,
        *plan.run_by.values(),
        *plan.parsed.values(),
    ]:
        assert (ROOT / test).exists(), test
    for start, test in plan.run_by.items():
        texts = [block.text for block in found if block.text.startswith(start)]
        program = (ROOT / test).read_text()
        has_them = page.name in program or all(text in program for text in texts)
        assert has_them, f"{test} neither reads {page.name} nor has its block"


@pytest.mark.peer
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("group", "slow"),
    [
        pytest.param(group, slow, marks=pytest.mark.slow if slow else (), id=group + slow * "-slow")
        for group, slow in GROUPS
    ],
)
def test_pages_print_what_they_say(group: str, slow: bool) -> None:
    network = own_network()
    if not network:
        pytest.skip("default ports need a network namespace: unshare and ip")
    pages = [page for page, plan in PLANS.items() if plan.group == group and slow in plan.runs]
    with TemporaryDirectory(prefix="penstock-pages-") as folder:
        program = [sys.executable, "-m", "tests.pages.page_runner"]
        Path(folder).chmod(0o755)  # the embedded PostgreSQL may run as another user
        done = subprocess.run(
            [*network, *program, folder, "slow" if slow else "quick", *pages],
            cwd=ROOT,
            env=os.environ | {"HOSTS": f"{folder}/hosts"},
            capture_output=True,
            text=True,
            check=False,
            timeout=1180,
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


def test_an_ellipsis_on_a_line_is_any_lines_or_none() -> None:
    wanted = pattern("a 1\n…\nb 2\n…", any_number=True)
    for found in ("a 1\nb 2", "a 7\n\nb 2\n: more", "a 1\n: more\n: more\n\nb 3\n"):
        assert re.fullmatch(wanted, found, re.S)
    assert not re.fullmatch(wanted, "a 1\n: more", re.S)
