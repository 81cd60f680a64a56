"""The checkpoints of a store as decisions need them: each with its head, and which read transcripts alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.checkpoint import Checkpoint, same_reading, same_slots
from core.conduct.planners import CONDUCTOR, FIXED
from core.play.policies import CANDIDATE, CASCADE, needs_no_checkpoint
from core.pool.spec import ModelSpec
from storage.analysis import defaults
from storage.analysis.standings import PolicySide, policies_with_episodes
from storage.rows.summaries import CheckpointSummary, EpisodeSummary
from storage.store import Store
from ui.answers.asked import like_chance as like_chance_words
from ui.answers.asked import prefers_nothing as has_no_preference
from ui.answers.asked import side_words
from ui.presentation.theme import plain
from ui.presentation.words import Generations, distinct, generations_of, policy_name
from ui.runs.policies import named_policy
from ui.runs.policy_kinds import POLICIES
from ui.web.kit import state
from ui.web.kit.cache import cached, remembered
from ui.web.pickers.line import listed

_played = cached(policies_with_episodes)
#: Checkpoints that are offered for comparison with one, its own run's first.
MOST_OFFERED = 300
#: The policies whose names are one word.
ALONE = tuple(word for word, one in POLICIES.items() if one.alone)
#: The panel of Checkpoints that plays policies on the same tasks.
PLAY = "play"


def play_link(words: str, policies: Sequence[str]) -> None:
    """A link to the form that plays these policies on the same tasks, the baseline first; without any it chooses."""
    state.page_link(
        "checkpoints", words, icon=":material/play_circle:", panel=PLAY, c=listed(dict.fromkeys(policies))
    )


@remembered(most=64, seconds=600)
def checkpoint_of(store: Store, policy: str) -> Checkpoint | None:
    """The checkpoint that a policy is, None for one that the store lacks. CheckpointError for a damaged one."""
    return store.checkpoints.find(policy)


@remembered(most=4, seconds=60)
def _all(store: Store) -> list[CheckpointSummary]:
    return store.checkpoints.list()


@cached
def generation_of(store: Store) -> Generations:
    """Policy -> generation, or iteration of a planner, by which it is named."""
    return generations_of(store)


@remembered(most=4, seconds=60.0)
def _lately(store: Store) -> Generations:
    return generation_of(store)


def generation_in(store: Store, one: EpisodeSummary) -> int | str | None:
    """The generation by which an episode's policy is named. What was read within the last minute serves where it holds
    the policy: most of what is written to a store meanwhile, such as a label, names nothing anew."""
    lately = _lately(store)
    names = lately if one.policy in lately or one.generation is None else generation_of(store)
    return names.get(one.policy, one.generation)


def others(store: Store, checkpoint: Checkpoint, *, reading: bool = True) -> list[CheckpointSummary]:
    """The other checkpoints with the same slots and, unless `reading` is False, the same reading: those that played
    first, of these those of the same run, of these the newest."""
    own: dict[str, Any] = checkpoint.to_config()
    checkpoints = _all(store)
    run = next((one.run_id for one in checkpoints if one.id == checkpoint.id), None)
    fitting = [
        one
        for one in checkpoints
        if one.id != checkpoint.id
        and same_slots(own, one.config)
        and (same_reading(own, one.config) or not reading)
    ]
    fitting.sort(key=lambda one: (one.run_id == run, one.run_id or "", one.generation or 0), reverse=True)
    played = store.checkpoints.policies_with_episodes()
    return sorted(fitting, key=lambda one: one.id not in played)[:MOST_OFFERED]


def playable(store: Store, models: Sequence[str]) -> list[str]:
    """Policies that decide the turns of these models one by one: checkpoints that played first, the newest first, then
    those that need none, and the cascades that have played in this store."""
    fitting = [one for one in store.checkpoints.list() if one.models == tuple(models)]
    ordered = [one.id for one in defaults.newest_first(store, fitting)]
    cascades = sorted({one.policy for one in _played(store) if one.policy.startswith(CASCADE)})
    return [
        *ordered,
        *("random", "round-robin", "random-model"),
        *(f"single:{model}" for model in models),
        *(one for one in cascades if needs_no_checkpoint(one, models)),
    ]


def startable(store: Store, specs: Sequence[ModelSpec], *, batch: bool = False) -> list[str]:
    """Policies that an episode of these models can be played by: those that are `playable`, and those that write whole
    workflows: trained planners, frozen and random workflows, and each model that can be asked for one; and those that
    make one answer of several. `batch`: those, too, that are chosen or taught before they play."""
    models = tuple(spec.name for spec in specs)
    trained = [one for one in store.checkpoints.list(planners=True) if one.models == models]
    prompted = [f"{CONDUCTOR}prompted:{spec.name}" for spec in specs if spec.dialect == "general"]
    decide_turns = playable(store, models)
    return [
        *decide_turns,
        *(one.policy for one in sorted(trained, key=defaults.age, reverse=True)),
        *(f"{CONDUCTOR}fixed:{name}" for name in FIXED),
        f"{CONDUCTOR}random",
        *prompted,
        *(one for one in ALONE if (batch or one == "mixture") and one not in decide_turns),
        *(f"majority:{model}" for model in models),
    ]


def why_not_played(store: Store, policy: str, specs: Sequence[ModelSpec], pool: str) -> str:
    """Why a policy is none of those that can be started with these models, plain text."""
    name = policy_name(policy, generation_of(store).get(policy))
    if policy.startswith(CANDIDATE):
        return f"{name} cannot play again: its weights are not kept. Choose the checkpoint of its generation."
    found = store.checkpoints.named(policy)
    if found is not None and (models := found.models):
        here = ", ".join(spec.name for spec in specs)
        return (
            f"{name} chooses among {', '.join(models)}; the pool at hand has {here}. To play it, start the app with "
            "the pool that it was made for (TRINITY_POOL)."
        )
    return f"{name} cannot be played here: it is no checkpoint of this store, and no policy of this pool."


def writes_workflows(store: Store, policy: str) -> bool:
    """Whether a policy plans whole workflows, and decides no turns one by one."""
    return policy.startswith(CONDUCTOR) or store.checkpoints.has(policy, planner=True)


def plays_whole(store: Store, policy: str, models: Sequence[str]) -> bool:
    """Whether a policy decides no turns one by one: it plans whole workflows, or makes one answer of several."""
    return writes_workflows(store, policy) or not named_policy(policy, models).decides_turns


def policy_label(store: Store) -> Callable[[str], str]:
    """How a list names a policy, plain text: `gen 30`, which checkpoints are samples, and which never played."""
    names, samples = generation_of(store), store.runs.sample_ids()
    played = store.checkpoints.policies_with_episodes()
    sampled = {one.policy for one in store.checkpoints.list(planners=None) if one.run_id in samples}

    def words(name: str) -> str:
        called = policy_name(name, names.get(name))
        sample = " · sample" if name in sampled and not called.endswith(" sample") else ""
        idle = " · has played nothing yet" if name in names and name not in played else ""
        return plain(f"{called}{sample}{idle}", 90)

    return words


def policy_words(store: Store, policies: Sequence[str]) -> dict[str, str]:
    """The policies of a list, each with words of its own, as `policy_label` has them."""
    say = policy_label(store)
    return distinct({one: say(one) for one in policies})


def side_namer(store: Store) -> Callable[[PolicySide], str]:
    """How a comparison names its sides, as `side_words` has it."""
    return side_words(_played(store), generation_of(store))


def readers(store: Store, checkpoint: Checkpoint) -> Sequence[str]:
    """The checkpoints whose recorded states can be compared with this one's: itself, and all that read as it does with
    no SVF in between."""
    own = checkpoint.to_config()
    if checkpoint.svf_layout:
        return [checkpoint.id]
    others = [one for one in _all(store) if not one.config.get("svf_layout")]
    alike = [one.id for one in others if same_reading(own, one.config)]
    return sorted({checkpoint.id, *alike})


prefers_nothing = cached(has_no_preference)


def like_chance(store: Store, policies: Sequence[str], say: Callable[[str], str]) -> str:
    """Why checkpoints among these policies have the numbers of `random`, plain text; empty where none does."""
    return like_chance_words(policies, say, lambda policy: prefers_nothing(store, policy))


default_checkpoints = cached(defaults.default_checkpoints)
default_planner = cached(defaults.default_planner)
best_and_baseline = cached(defaults.best_and_baseline)
most_telling = cached(defaults.most_telling)
own_and_shipped = cached(defaults.own_and_shipped)
