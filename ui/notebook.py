"""From a notebook or a script: episodes and answers as data frames, and a coordinator's decision on one's own text.

    from ui.notebook import answers, coordinator, decide, episodes, open_store
    store = open_store()
    wrong = episodes(store, "correct == False and turns > 3")  # a data frame of pandas
    accepts = answers(store, "verifier")["false_accept"].tables["estimates"]
    learned = coordinator(store)  # the best validated checkpoint
    decision = decide(learned, "Ann has 7 shells. Ida has 5 more than Ann. How many shells does Ida have?")

`dict(zip(learned.models, decision.model_probs))` then says how likely each model is to be asked. Every mistake is a
`core.errors.TrinityError` of one sentence. Importing this module loads neither torch nor pandas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.checkpoint import load_checkpoint
from core.draws import turn_key
from core.episode import Decide, Decision, Message, Protocol, Role, Task, Transcript, TranscriptEntry
from core.errors import CheckpointError, ConfigError
from core.play.roles import Situation, router_messages
from storage.analysis.defaults import best_validated, validated_checkpoints
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from storage.store import open_store as open_store_at
from ui.answers import pages, plain
from ui.answers.asked import asked_of
from ui.answers.blocks import Answer, Bars, Code, Curve, Drawn, Trend
from ui.runs import wiring
from ui.runs.policies import Policies

if TYPE_CHECKING:
    import pandas as pd

    from core.coordinator.coordinator import Coordinator
    from storage.files.parquet import RowKind


def open_store(place: str | Path | None = None) -> Store:
    """The store at a database URL or SQLite file; None: the one of TRINITY_STORE, of `config.toml` or of the user's
    data folder, as for every command. `close()` gives it back. StoreError where it cannot be opened."""
    return open_store_at(wiring.settings(store=None if place is None else str(place)).store)


def episodes(store: Store, where: str | None = None) -> pd.DataFrame:
    """A row per episode, in the order of ids, with the columns of `trinity export --format parquet` and one,
    `label_NAME`, for each name of a label.

    `where` is an expression of the filter language, as after `--where`; None takes what `trinity episodes` lists.
    Times are in UTC, an unknown number or truth is `<NA>`. ExpressionError for one that cannot be read."""
    return _frame(store, where, "episodes")


def turns(store: Store, where: str | None = None) -> pd.DataFrame:
    """A row per turn of the same episodes, by episode and turn (from 1). `model_logits`, `model_probs` [models of the
    episode] and `role_logits`, `role_probs` [worker, thinker, verifier] are arrays."""
    return _frame(store, where, "turns")


@dataclass(frozen=True, slots=True)
class Answered:
    """A question, the sentence that answers it, and the tables that this rests on, by their names in `--json`."""

    question: str
    sentence: str
    tables: Mapping[str, pd.DataFrame]

    def __str__(self) -> str:
        return f"{self.question}\n{self.sentence}"


def answers(
    store: Store,
    analysis: str = "verifier",
    where: str | None = None,
    *,
    policy: str | None = None,
    against: str | None = None,
    **choices: str,
) -> dict[str, Answered]:
    """What the command `trinity ANALYSIS --json` answers, by the same keys. `policy` counts its episodes alone,
    `against` sets it beside another; `choices` are those after `--choose`.

    Shares are from 0 to 1 with `ci95`, their 95 % interval, and are `k` of `n`; money is in USD. ConfigError for an
    analysis that there is not, or where no finished episode matches."""
    offered = [name for name, one in pages.ANALYSES.items() if one.by_filter]
    if analysis not in offered:
        raise ConfigError(
            f"There is no analysis '{analysis}' of a filter: choose one of {', '.join(offered)}."
        )
    asked = asked_of(store, EpisodeFilter(policy=policy, q=where), against, choices)
    return {one.key: _answered(one) for of in pages.answers(analysis, asked).values() for one in of}


def outcomes(
    store: Store, table: str, *, fold: int = 0, split: str = "all", part: Sequence[str] = (), **choices: str
) -> dict[str, Answered]:
    """What `trinity outcomes show TABLE --json` answers, by the same keys: of an outcome table that lies in the data
    folder, whose tasks `fold` splits. `split`: whose accuracies. TaskError for a table that is not there."""
    from core.outcomes.table import load_table
    from ui.answers.asked import memory
    from ui.answers.outcomes.subject import asked_of_table

    asked = asked_of_table(store, load_table(table), fold, split, choices=choices, remember=memory())
    return {one.key: _answered(one) for of in pages.answers("outcomes", asked, part).values() for one in of}


def coordinator(
    store: Store, checkpoint: str | None = None, *, encoder: str | None = None, argmax: bool = False
) -> Coordinator:
    """A checkpoint of the store by its id, or of a folder, on its encoder; None: the best validated one.

    `encoder` is a folder, a hub id or "pocket" (None: that of TRINITY_ENCODER, else the checkpoint's own). It decides
    by a draw from its probabilities, with `argmax` by the likeliest. StoreError for a checkpoint that the store lacks,
    CheckpointError for one that does not fit the encoder."""
    if checkpoint is None:
        checkpoint = best_validated(validated_checkpoints(store, store.checkpoints.list()))
        if checkpoint is None:
            raise CheckpointError(
                "No evolution of this store has validated a checkpoint: name one, or run trinity evolve first."
            )
    made = load_checkpoint(checkpoint) if Path(checkpoint).is_dir() else store.checkpoints.load(checkpoint)
    chosen = wiring.settings(encoder=encoder).encoder
    return Policies(store, made.models, argmax, chosen).coordinator(made)


def decide(
    coordinator: Coordinator, question: str, transcript: Sequence[tuple[str, str, str]] = (), *, seed: int = 0
) -> Decision:
    """The model and role of the turn that follows `transcript`: (role, model, text) of each turn so far.

    `model_logits`, `model_probs` [models] are in the order of `coordinator.models`, `role_logits`, `role_probs` [3] in
    that of `core.episode.ROLE_ORDER`: worker, thinker, verifier. The same seed draws the same choice. ConfigError for a
    role that there is not. `prompt_overflow` says whether the text was too long for the encoder and was cut."""
    try:
        entries = tuple(TranscriptEntry(Role(role), model, text) for role, model, text in transcript)
    except ValueError:
        raise ConfigError(
            f"Each turn needs one of the roles {', '.join(Role)}, a model and a text."
        ) from None
    messages: tuple[Message, ...] = ()
    if coordinator.checkpoint.protocol is Protocol.RELEASED:
        thoughts = tuple(one.text for one in entries if one.role is Role.WORKER)
        situation = Situation(Task("", question, ""), Protocol.RELEASED, entries, thoughts=thoughts)
        messages = router_messages(situation, len(coordinator.models))
    key = turn_key(seed, question, len(entries))
    request = Decide(Transcript(question, entries), len(entries), key, messages=messages)
    [decision] = coordinator.decide([request])
    return decision


def _answered(one: Answer) -> Answered:
    drawn = [block for block in (*one.blocks, *one.measured) if not isinstance(block, str | Code)]
    return Answered(one.question, one.sentence, {block.key: _table(block) for block in drawn})


def _table(block: Drawn) -> pd.DataFrame:
    """A row per line, cell or point; an estimate is a column for each of its numbers."""
    import pandas as pd

    found = plain.values(block)
    if isinstance(block, Bars):
        return pd.DataFrame(found)
    if isinstance(block, Curve | Trend):
        found = [{"line": name, **point} for name, points in found.items() for point in points]
    return pd.json_normalize(found)


def _frame(store: Store, where: str | None, rowed: RowKind) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    from storage.files.parquet import read_rows

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return read_rows(store, EpisodeFilter(q=where), rowed).to_pandas(types_mapper=nullable.get)
