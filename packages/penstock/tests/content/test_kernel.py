"""With inner loops that were compiled the matcher finds what it finds without, and is made so."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from penstock.content.matching import Matcher, cluster
from penstock.content.matching import kernel as kernel_module
from penstock.content.matching.kernel import NativeKernel, build_kernel, load_kernel
from penstock.content.messages import Operator, Predicate, Publication, Subscription
from penstock.content.relations import satisfies
from tests.content.worlds import filters, happenings, narrow, ranges

WORLDS = {"anything": filters, "ranges": ranges, "narrow": narrow}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> NativeKernel:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler, and nothing needs one")
    library = tmp_path_factory.mktemp("kernel") / "kernel.so"
    build_kernel(library)
    found = load_kernel(library)
    assert found is not None
    return found


@pytest.mark.parametrize("small", [0, 1024])
@pytest.mark.parametrize("shape", WORLDS)
@pytest.mark.parametrize("equal", [True, False])
def test_the_same_is_found(
    kernel: NativeKernel, monkeypatch: pytest.MonkeyPatch, shape: str, small: int, equal: bool
) -> None:
    monkeypatch.setattr(cluster, "_SMALL", small)
    random = Random(small + equal)
    filed = [Predicate("d", Operator.EQ, letter) for letter in "ab"]
    table: Matcher[int] = Matcher(kernel=lambda: kernel)
    wanted = {}
    for key, one in enumerate(WORLDS[shape](random, 1500)):
        wanted[key] = Subscription("k", (random.choice(filed), *one) if equal else one)
        table.insert(key, wanted[key])
    for key in random.sample(sorted(wanted), 700):
        table.remove(key)
        del wanted[key]

    for publication in happenings(random, 40):
        held = {**publication.attributes, "d": random.choice("abc")}
        publication = Publication("k", held)
        expected = [key for key, one in wanted.items() if satisfies(publication, one)]
        assert sorted(table.match(publication)) == sorted(expected)


def test_the_library_does_not_take_the_place_of_a_module() -> None:
    modules = {path.stem for path in kernel_module._LIBRARY.parent.glob("*.py")}
    assert kernel_module._LIBRARY.stem not in modules


def test_what_is_no_library_of_ours_is_not_used(tmp_path: Path) -> None:
    assert load_kernel(tmp_path / "missing.so") is None
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    assert load_kernel(broken) is None
