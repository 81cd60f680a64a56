"""A finished evolution, for the pages that show one."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.store import Store, open_store
from tests.builders.stores import copy_store
from tests.ui.sums import Sums, sums
from tests.ui.web.evolutions import finished_by_worker


@pytest.fixture(scope="session")
def _evolved(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("evolved")
    with pytest.MonkeyPatch.context() as patched, sums(folder, patched) as world:
        world.add_tasks_to_evolve_on()
        patched.setenv("TRINITY_ENCODER", str(tiny_encoder))
        store = open_store(world.store)
        run = finished_by_worker(store, world)
        store.close()
    return Path(world.store), run


@pytest.fixture
def evolved(world: Sums, store: Store, _evolved: tuple[Path, str]) -> str:
    """A finished evolution in the world's store."""
    path, run = _evolved
    copy_store(path, world.store)
    return run
