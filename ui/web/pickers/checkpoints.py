"""The checkpoints of a store as decisions need them: each with its head, and which read transcripts alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.analysis.metrics import wilson_interval
from core.checkpoint import Checkpoint, same_reading, same_slots
from core.conduct.planners import CONDUCTOR, FIXED
from core.play.policies import CANDIDATE, SINGLE
from core.pool.spec import ModelSpec
from storage.analysis.standings import PolicySide, figures, policies_with_episodes, sides_of
from storage.rows.summaries import CheckpointSummary, EpisodeSummary
from storage.store import Store
from ui.answers.policies import default_checkpoints as chosen_at_first
from ui.answers.policies import like_chance as like_chance_words
from ui.answers.policies import own_first, side_words
from ui.answers.policies import prefers_nothing as has_no_preference
from ui.presentation.theme import plain
from ui.presentation.words import Generations, distinct, generations_of, policy_name
from ui.web.kit import state
from ui.web.kit.cache import cached, remembered
from ui.web.pickers.line import listed

_played = cached(policies_with_episodes)
#: Checkpoints that are offered for comparison with one, its own run's first.
MOST_OFFERED = 300
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
    return played_first(store, fitting)[:MOST_OFFERED]


def played_first(store: Store, ordered: Sequence[CheckpointSummary]) -> list[CheckpointSummary]:
    """Those that decided an episode before those that never did; else the order that they come in."""
    played = store.checkpoints.policies_with_episodes()
    return sorted(ordered, key=lambda one: one.id not in played)


def playable(store: Store, models: Sequence[str]) -> list[str]:
    """Policies that fit the pool: checkpoints that played first, the newest first, then those that need none."""
    fitting = [one for one in store.checkpoints.list() if one.models == tuple(models)]
    ordered = played_first(store, sorted(fitting, key=_age, reverse=True))
    alone = [f"{SINGLE}{model}" for model in models]
    return [*(one.id for one in ordered), "random", "round-robin", *alone]


def startable(store: Store, specs: Sequence[ModelSpec]) -> list[str]:
    """Policies that an episode of these models can be played by: those that are `playable`, and those that write whole
    workflows: trained planners, frozen and random workflows, and each model that can be asked for one."""
    models = tuple(spec.name for spec in specs)
    trained = [one for one in store.checkpoints.list(planners=True) if one.models == models]
    prompted = [f"{CONDUCTOR}prompted:{spec.name}" for spec in specs if spec.dialect != "terse"]
    return [
        *playable(store, models),
        *(one.policy for one in sorted(trained, key=_age, reverse=True)),
        *(f"{CONDUCTOR}fixed:{name}" for name in FIXED),
        f"{CONDUCTOR}random",
        *prompted,
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


def own_and_shipped(store: Store, models: Sequence[str], own: str | None = None) -> list[str]:
    """Whom to play against each other at first, the baseline first: `own`, else the newest checkpoint of one's own that
    chooses among these models; and beside it the best that came with the program or, where none of these fits, the best
    single model."""
    samples = store.runs.sample_ids()
    fitting = [one for one in _all(store) if list(one.config.get("models", [])) == list(models)]
    mine = [one for one in fitting if one.run_id not in samples]
    if own is None and mine:
        own = max(mine, key=_age).id
    run = next((one.run_id for one in fitting if one.id == own), None)
    shipped = [one.id for one in fitting if one.run_id in samples and one.run_id != run]
    if own is None and shipped:
        own, shipped = _most_accurate(store, shipped), []
    best = _most_accurate(store, shipped or [f"{SINGLE}{model}" for model in models])
    return [one for one in (best, own) if one is not None]


def _most_accurate(store: Store, policies: Sequence[str]) -> str | None:
    """The one that is surely best: by the lower end of its interval in the run in which it played most, so that a few
    lucky plays do not make a best."""
    most = {one.policy: one for one in sorted(_played(store), key=lambda one: one.n)}
    sides = [PolicySide(policy, most[policy].run) for policy in policies if policy in most]
    surely = dict.fromkeys(policies, 0.0)
    for one in figures(store, sides) if sides else ():
        surely[one.side.policy] = wilson_interval(one.summary.correct, one.summary.n)[0]
    return max(policies, key=surely.__getitem__, default=None)


def writes_workflows(store: Store, policy: str) -> bool:
    """Whether a policy plans whole workflows, and decides no turns one by one."""
    return policy.startswith(CONDUCTOR) or store.checkpoints.has(policy, planner=True)


@cached
def played_planner(store: Store, *, samples: bool = False) -> str | None:
    """The policy of the last planner of the newest training that has recorded episodes, None for none: of one's own as
    soon as anything of one's own has played; `samples`: of those that came with the program."""
    played_in = policies_with_episodes(store)
    counted = [one for one in played_in if one.sample] if samples else own_first(played_in)
    here = {one.policy for one in counted}
    played = [one for one in store.checkpoints.list(planners=True) if one.policy in here]
    return max(played, key=_age).policy if played else None


def most_telling(store: Store, names: Sequence[str], own: str) -> str | None:
    """Which of these policies to show at first beside `own`: of the checkpoints that played, those of its run where
    there are any, the one before it; where it is the oldest, or no checkpoint, the most accurate. None: there are no
    names."""
    played = store.checkpoints.policies_with_episodes()
    checkpoints = {one.id: one for one in store.checkpoints.list()}
    ours = checkpoints.get(own)
    seen = [checkpoints[name] for name in names if name in played]
    kin = [one for one in seen if ours and one.run_id == ours.run_id] or seen
    if not kin:
        return names[0] if names else None
    if older := [one for one in kin if ours and _age(one) < _age(ours)]:
        return max(older, key=_age).id
    accuracy = _accuracies(store, tuple(one.id for one in kin))
    return max(kin, key=lambda one: (accuracy[one.id], _age(one))).id


def _age(one: CheckpointSummary) -> tuple[float, int]:
    return one.created, one.generation or 0


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


#: Policies that nobody learned or wrote, beside the models alone.
CONTROLS = ("random", "random-model", "round-robin")
default_checkpoints = cached(chosen_at_first)


def best_and_baseline(
    store: Store, policies: Sequence[str], *, samples: bool = False
) -> tuple[str | None, str]:
    """(baseline, best) of these policies, of which there is at least one: the checkpoint with most tasks right among
    those that other pages compare by default, and the first generation of its evolution. Where these have not played,
    the newest checkpoint, else what is no control, the first of them, beside the random policy; None: that has not
    played either. `samples` as in `default_checkpoints`."""
    ids = [one for one in default_checkpoints(store, samples=samples) if one in policies]
    if len(ids) > 1:
        accuracy = _accuracies(store, tuple(ids))
        return ids[0], max(reversed(ids[1:]), key=accuracy.__getitem__)
    played = [one for one in store.checkpoints.list() if one.id in policies]
    newest = [one.id for one in played if one.run_id == played[0].run_id][-1:]
    others = [one for one in policies if one not in CONTROLS and not one.startswith(SINGLE)]
    best = [*newest, *others, *(one for one in policies if one != "random"), *policies][0]
    return ("random" if "random" in policies and best != "random" else None), best


@cached
def _accuracies(store: Store, policies: Sequence[str]) -> dict[str, float]:
    """Of each policy, the share of right episodes under the setting that it was played most under; 0 for what has no
    episodes that count."""
    played = policies_with_episodes(store)
    sides = [found[0] for policy in policies if (found := sides_of(played, policy))]
    return dict.fromkeys(policies, 0.0) | {
        one.side.policy: one.summary.accuracy or 0.0 for one in (figures(store, sides) if sides else ())
    }
