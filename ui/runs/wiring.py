"""Turns names into parts, once, at a door: settings, sample runs, pool, checkpoints and policies.

torch is imported only where a coordinator or a pocket model is needed.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.checkpoint import Checkpoint
from core.errors import CheckpointError, ConfigError, StoreError, TaskError
from core.planner.card import PlannerCard
from core.pocket import MODELS, WEIGHTS
from core.pocket.models import pocket_spec
from core.pool.pool import Pool
from core.pool.spec import ModelSpec, slots_of
from core.processes import Processes, cores
from core.settings import (
    LOCAL_ENGINE,
    POCKET_POOL,
    Computing,
    Dtype,
    Settings,
    is_mixed,
    ray_address,
    read_settings,
)
from core.settings import data_folder as data_folder
from core.tasks.sets import outcome_folder
from core.tokens.hub import pinned
from core.tokens.shelf import OFFERS, shelved, source_of
from storage.files.atomic import atomic_file
from storage.files.decompositions import DecompositionFolder
from storage.rows.engine import database_url
from storage.shelves.labels import LONGEST_AUTHOR
from storage.shelves.states import StateFile
from storage.store import Store
from ui.runs.settings import is_recorded

if TYPE_CHECKING:
    from core.cluster.cluster import Cluster, Machines
    from core.coordinator.encoder import Encoder
    from core.episode import Task
    from core.planner.planner import LanguagePlanner
    from core.play.policies import Policy
    from core.pocket.pool import PocketPool


log = logging.getLogger(__name__)

#: Beside the user's store: the folder of each encoder by the digest of its weights.
ENCODERS = "encoders.json"

#: Beside the user's store: what large encoders have read.
STATES = "states.db"

#: Beside the user's store: the decompositions of large encoders' matrices.
DECOMPOSITIONS = "decompositions"

#: Beside the packages, in a checkout as in an installed wheel.
SAMPLE_RUNS = Path(__file__).resolve().parents[2] / "sample_runs"


def settings(**arguments: object) -> Settings:
    """The settings of this process; `arguments` that are None count as not given."""
    return read_settings(arguments, os.environ, data_folder())


def has_samples() -> bool:
    """Whether sample runs came with this installation."""
    return SAMPLE_RUNS.is_dir() and any(SAMPLE_RUNS.glob("*.jsonl*"))


def wants_samples(store: Store, chosen: Settings) -> bool:
    """Whether this store should be given the sample runs: it is empty, or never had them offered."""
    return (
        not store.read_only
        and has_samples()
        and (store.health().runs == 0 or not _samples_mark(chosen).exists())
    )


def import_samples(store: Store, chosen: Settings) -> None:
    """Import the sample runs and remember it, so that runs a user deletes do not come back."""
    from storage.files.interchange import import_runs

    import_runs(store, SAMPLE_RUNS)
    mark = _samples_mark(chosen)
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as error:
        log.warning("Sample runs that you delete will come back: %s cannot be written (%s)", mark, error)


def _samples_mark(chosen: Settings) -> Path:
    """An empty file whose name tells store and sample runs."""
    names = sorted(f"{path.name}:{path.stat().st_size}" for path in SAMPLE_RUNS.glob("*.jsonl*"))
    return chosen.data_folder / "samples" / store_digest(chosen, *names)


def store_digest(chosen: Settings, *more: str) -> str:
    """Tells stores apart, and what is said of one of them; the same however the store's address was typed."""
    store = database_url(chosen.store).render_as_string(hide_password=False)
    return hashlib.sha256("\n".join([store, *more]).encode()).hexdigest()[:16]


def is_here(pool: str) -> bool:
    """Whether the pool that a run names can be had on this machine: the embedded one, an outcome table of this user, or
    a pool.toml. An imported run names the file alone: one of that name in some folder need not be it."""
    if is_recorded(pool):
        with suppress(TaskError):
            return outcome_folder(pool, data_folder()).is_dir()
        return False
    return pool == POCKET_POOL or (Path(pool).is_absolute() and Path(pool).is_file())


def check_recorded(pool: Pool, tasks: Iterable[Task], policies: Iterable[Policy] = ()) -> None:
    """PoolError or ConfigError, where a pool's models reply from an outcome table, for tasks and policies that it
    cannot be played with."""
    if any(spec.provider == "recorded" for spec in pool.specs):
        from core.outcomes.pool import RecordedPool

        assert isinstance(pool, RecordedPool)
        pool.check(tasks, policies)


def resolve_pool(name: str, *, judged: bool = True, engine: str = LOCAL_ENGINE) -> Pool:
    """The pool of a pool.toml, with keys from the environment, its judge only where something is `judged`; the embedded
    one for "pocket"; for "outcomes:NAME" the recorded models of that outcome table. The
    `engine` makes their calls."""
    if name == POCKET_POOL:
        return pocket_pool(engine)
    if is_recorded(name):
        from core.outcomes.pool import RecordedPool
        from core.outcomes.table import load_table

        return RecordedPool(load_table(name))
    from core.pool_file import build_pool, load_specs

    specs = load_specs(Path(name), data_folder())
    return build_pool(specs if judged else slots_of(specs), os.environ, processes(engine))


def pocket_pool(engine: str = LOCAL_ENGINE) -> PocketPool:
    """The embedded pool, one for a process and engine, so that its models are loaded once. ConfigError without
    weights."""
    return _pocket_pool(processes(engine))


@lru_cache(maxsize=2)  # of this machine, and of the cluster that was joined last
def _pocket_pool(processes: Processes) -> PocketPool:
    from core.pocket.pool import PocketPool

    missing = [model for model in MODELS if not (WEIGHTS / model / "model.safetensors").exists()]
    if missing:
        raise ConfigError(
            f"The pocket models {', '.join(missing)} have no weights in {WEIGHTS}: "
            "install Trinity Inspector again, or train them with 'trinity pocket train'."
        )
    return PocketPool(processes=processes)


_PRELOAD = ("core.pocket.pool", "core.coordinator.encoder")
#: The cluster that this process is in, by its engine: Ray allows one at a time.
_joined: dict[str, Cluster] = {}
#: The one that it is going to be in.
_begun: dict[str, Machines] = {}
_joining = threading.Lock()


def processes(engine: str = LOCAL_ENGINE) -> Processes:
    """Who shares the work of small models with this process: never more in all than the machine has cores; or as many
    as a Ray cluster has, which is joined, and another one left. ConfigError where that is not possible."""
    if (address := ray_address(engine)) is None:
        return _of_this_machine()
    from core.cluster.cluster import Cluster

    with _joining:
        if engine not in _joined:
            most, machines = settings().processes, _machines(engine, address)
            _joined[engine] = Cluster(machines, most, preload=_PRELOAD, mixed=is_mixed(engine))
        return _joined[engine]


def join_ahead(engine: str) -> None:
    """Begin to join the cluster of an engine, where it has one, and leave another one, while this process gets ready:
    `processes` waits for it, and raises what is wrong with it."""
    if (address := ray_address(engine)) is None:
        return
    with _joining:
        if engine not in _joined:
            _begun[engine] = _machines(engine, address)


def _machines(engine: str, address: str) -> Machines:
    """Those that are being joined, and no others."""
    from core.cluster.cluster import Machines

    if (begun := _begun.pop(engine, None)) is None:
        _leave()
        begun = Machines(address)
    return begun


def leave_cluster() -> None:
    """Leave the cluster that this process is in, if it is in one, so that no helper waits there for its next run."""
    with _joining:
        _leave()


def _leave() -> None:
    for found in (_joined, _begun):
        while found:
            found.popitem()[1].leave()


@cache
def _of_this_machine() -> Processes:
    chosen = settings().processes
    return Processes(cores() if chosen is None else min(chosen, cores()), preload=_PRELOAD)


def pool_specs(name: str) -> tuple[ModelSpec, ...]:
    """The pool's slots without loading a model; ConfigError or PoolError as for the pool itself."""
    if name == POCKET_POOL:
        return tuple(pocket_spec(model) for model in MODELS)
    return resolve_pool(name).specs


def encoder_for(pool: str, encoder: str | None) -> str:
    """The encoder that a coordinator of this pool is to read with: the one that is named, else the pocket one for
    pocket models alone. ConfigError for other models without a named one: their prose is not what it was trained on,
    and far longer than its window; and for an outcome table without texts."""
    if is_recorded(pool):
        from core.outcomes.pool import RecordedPool
        from core.outcomes.table import load_table

        RecordedPool(load_table(pool)).check_texts()
    if encoder:
        return encoder
    others = (
        [spec.name for spec in slots_of(pool_specs(pool)) if spec.provider != "pocket"]
        if pool != POCKET_POOL
        else []
    )
    if others:
        raise ConfigError(
            f"Name the language model that reads the transcripts of {', '.join(others[:3])}"
            f"{' and others' if len(others) > 3 else ''} by --encoder or TRINITY_ENCODER: smollm2 after trinity "
            "encoders add smollm2, a folder, or a hub id such as Qwen/Qwen3-0.6B. The pocket encoder was trained on "
            "short pocket texts and holds 1,024 of its small tokens; 'pocket' takes it all the same."
        )
    return POCKET_POOL


def keep_checkpoint(store: Store, checkpoint: Checkpoint, run_id: str | None = None) -> None:
    """Put a checkpoint into the store; one that is there already stays as it is."""
    if not store.checkpoints.has(checkpoint.id):
        store.checkpoints.add(**coordinator_fields(checkpoint, run_id))


def keep_planner(store: Store, planner: LanguagePlanner, run_id: str | None = None) -> None:
    """Put a planner into the store; one that is there already stays as it is."""
    if not store.checkpoints.has(planner.card.id, planner=True):
        store.checkpoints.add(**planner_fields(planner, run_id))


def coordinator_fields(checkpoint: Checkpoint, run_id: str | None = None) -> dict[str, Any]:
    """What the store keeps of a coordinator."""
    return {
        "checkpoint_id": checkpoint.id,
        "config": checkpoint.to_config(),
        "weights": checkpoint.to_bytes(),
        "run_id": run_id,
        "generation": checkpoint.generation,
        "kind": checkpoint.parts,
    }


def planner_fields(planner: LanguagePlanner, run_id: str | None = None) -> dict[str, Any]:
    """What the store keeps of a planner: its files where they are small, else written to a folder beside the user's
    store."""
    from core.planner.card import MOST_BYTES, pack

    card, packed = planner.card, planner.size_bytes <= MOST_BYTES
    with tempfile.TemporaryDirectory() if packed else nullcontext(data_folder() / "planners") as place:
        folder = planner.save(Path(place) / card.id)
        size = sum(path.stat().st_size for path in folder.iterdir())
        files = pack(folder) if packed else None
    return {
        "checkpoint_id": card.id,
        "config": card.to_json(),
        "weights": files,
        "run_id": run_id,
        "generation": card.iteration,
        "kind": card.kind,
        "folder": None if packed else str(folder),
        "size_bytes": size,
    }


def load_planner(
    store: Store, planner_id: str, models: Sequence[str] | None = None, *, argmax: bool = False
) -> LanguagePlanner:
    """A stored planner for a pool of these models (None: unchecked). StoreError for one that the store lacks,
    CheckpointError for another pool, or where its files are not on this machine."""
    from core.planner.card import unpacked
    from core.planner.planner import LanguagePlanner

    kept = store.checkpoints.get(planner_id)
    if models is not None:
        PlannerCard.of(kept.config).check_pool(tuple(models))
    files = store.checkpoints.weights(planner_id)
    if files is not None:
        with unpacked(files) as folder:
            return LanguagePlanner.load(folder, models, argmax=argmax)
    folder = data_folder() / "planners" / (kept.folder or "")  # an imported one is named without its place
    if kept.folder is None or not folder.is_dir():
        raise CheckpointError(
            f"The files of planner {planner_id} are not at {kept.folder}: bring them in by trinity checkpoints import "
            "FOLDER."
        )
    return LanguagePlanner.load(folder, models, argmax=argmax)


def loaded_encoder(
    name: str,
    computing: Computing | None = None,
    dtype: Dtype | None = None,
    engine: str = LOCAL_ENGINE,
) -> Encoder:
    """An encoder, loaded once by this process as long as its files stay the same; `computing` is the app's own where
    nothing else is said, and its numbers are `dtype` where it names none. CheckpointError when it cannot be loaded."""
    from core.coordinator.encoder import kept_encoder

    asked, source = computing or settings().computing, encoder_source(name)
    loaded = kept_encoder(
        source, dtype=asked.dtype or dtype, device=asked.device, processes=processes(engine)
    )
    return remember_encoder(loaded, data_folder())


def login() -> str:
    """The name one is logged in with on this machine."""
    try:
        return getpass.getuser()[:LONGEST_AUTHOR]
    except (OSError, KeyError):  # a user id without a name, as in containers
        return "reviewer"


# Encoders: a checkpoint names its own, and no place of it.


def encoder_source(name: str) -> str:
    """By what the encoder that a person or a plan names is loaded: the folder or hub id of one that was added by
    `trinity encoders add`, else the name itself."""
    return source_of(data_folder(), name)


@cache
def state_file(data_folder: Path) -> StateFile:
    """What large encoders have read on this machine, in whatever run."""
    return StateFile(data_folder / STATES)


@cache
def decomposition_folder(data_folder: Path) -> DecompositionFolder:
    """The decompositions of large encoders' matrices, in whatever run they were computed."""
    return DecompositionFolder(data_folder / DECOMPOSITIONS)


def remember_encoder(encoder: Encoder, data_folder: Path) -> Encoder:
    """The encoder, with what it has read in earlier runs; where its folder lies is kept for checkpoints of it, if the
    data folder can be written."""
    encoder.ledger = state_file(data_folder)
    encoder.decompositions = decomposition_folder(data_folder)
    known, identity = _known_encoders(data_folder), encoder.identity
    own = encoder.folder is not None and not identity.revision and identity.name != POCKET_POOL
    if own and known.get(identity.digest) != (place := str(Path(str(encoder.folder)).resolve())):
        try:
            data_folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(data_folder / ENCODERS) as draft:
                draft.write_text(json.dumps({**known, identity.digest: place}, indent=1), "utf-8")
        except (OSError, StoreError) as error:
            log.warning("Where the encoder lies will be asked for again: %s", error)
    return encoder


def encoder_place(checkpoint: Checkpoint, store: Store | None, data_folder: Path) -> str:
    """By what a checkpoint's encoder is loaded here: "pocket", a hub id at its commit, or the folder from which it was
    loaded before or which its evolution names. CheckpointError where a folder is not known."""
    encoder = checkpoint.encoder
    if encoder.revision:
        return pinned(encoder.name, encoder.revision)
    if encoder.name == POCKET_POOL:
        return encoder.name
    places: list[object] = [_known_encoders(data_folder).get(encoder.digest)]
    places += [one.source for one in shelved(data_folder) if one.digest == encoder.digest]
    if store is not None:
        with suppress(StoreError):  # it may have come without its evolution
            places.append(store.runs.get(checkpoint.parent_run).config.get("encoder"))
    for place in (*places, encoder.name):
        if isinstance(place, str) and os.path.isdir(place := source_of(data_folder, place)):
            return place
    raise CheckpointError(
        f"The encoder '{encoder.name}' of checkpoint {checkpoint.id} is a folder that is not known on this machine: "
        + (
            f"add it by trinity encoders add {encoder.name}."
            if encoder.name in OFFERS
            else "give its path by --encoder or TRINITY_ENCODER."
        )
    )


def _known_encoders(data_folder: Path) -> dict[str, str]:
    try:
        found = json.loads((data_folder / ENCODERS).read_text("utf-8"))
    except (OSError, ValueError):  # never written, or damaged: the next load mends it
        return {}
    return found if isinstance(found, dict) else {}
