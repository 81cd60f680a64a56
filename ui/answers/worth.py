"""What coordination is good for: against models alone, against luck, and without a model of the pool."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from core.play.policies import SINGLE
from storage.analysis.counterfactual import Without, without_each_model, without_models
from storage.analysis.defaults import default_checkpoints
from storage.analysis.regret import Contestant, MissedTask, Regret, regret, replicated_tasks, replicates
from storage.analysis.routing import pool_order
from storage.analysis.standings import policies_with_episodes
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.store import Store
from ui.answers.asked import Asked, Side, like_chance, mark_words, prefers_nothing
from ui.answers.blocks import (
    Address,
    Answer,
    Block,
    Code,
    Column,
    Estimate,
    Estimates,
    Line,
    Path,
    Table,
    Tree,
    Way,
)
from ui.presentation.theme import correct_mark, one_line, percent, plain, signed_points
from ui.presentation.words import right_words, setting_words, strip_text
from ui.runs.plans import known_plan
from ui.runs.settings.batch import BatchPlan

ORACLE = "solved by any of them alone (upper bound)"
_UPPER_BOUND = (
    "The upper bound counts a task as solved if any of these tries was right. No policy can reach it: of several "
    "models, or several tries, one is right by chance."
)
#: What picks alone cannot tell.
_ONLY_PLAYING = (
    "No model is asked: stored logits are read without the models left out. From the first changed pick on, an episode "
    "would have gone another way; how it would have ended, only playing tells."
)
_NO_LOGITS = "These episodes have no decisions with logits, so there is nothing to choose again."


def _policies(store: Store, where: EpisodeFilter) -> list[str]:
    return [one.value for one in store.episodes.facets(where).policy]


def _chosen_policy(asked: Asked, side: Side) -> str | None:
    """The side's policy; where it has none, the newest of the checkpoints that other pages compare by default, else the
    policy with most episodes that is not a single model, checkpoints first."""
    if side.where.policy:
        return side.where.policy
    known = {one.id for one in asked.store.checkpoints.list()}
    preferred = asked.read(default_checkpoints)[-1:]
    played = [one for one in asked.read(_policies, side.where) if not one.startswith(SINGLE)]
    return next((one for wanted in (preferred, known, played) for one in played if one in wanted), None)


def pays(asked: Asked) -> Answer:
    """Each side's policy against every model alone, on the tasks that all played."""
    blocks: list[Block] = []
    notes: list[Block] = ["Tasks count once, however often they were played; intervals are over tasks."]
    lines: dict[Side, str] = {}
    policies = {side: policy for side in asked.sides if (policy := _chosen_policy(asked, side))}
    for side in asked.sides:
        if side not in policies:
            lines[side] = "Choose a policy above that is not a single model."
            continue
        policy = policies[side]
        found = asked.read(regret, side.where, policy)
        alone = {one.name.removeprefix(SINGLE) for one in found.contestants if one.name}
        alone |= {policy.removeprefix(SINGLE)} if policy.startswith(SINGLE) else set()
        left = [model for model in asked.read(pool_order, side.where) if model not in alone]
        lines[side] = verdict(found, asked, whole_pool=not left) if found.tasks else ""
        if found.tasks:
            blocks += _against(asked, side, found)
            notes += _against_notes(asked, found)
        if left:
            which = "Not played alone yet" if alone else "No model alone has played"
            lacking = f"{which} on these tasks with the same turn budget, rules and pool: {', '.join(left)}."
            lines[side] = f"{lines[side]} {lacking} The command below plays them.".strip()
            blocks.append(
                Code(play_alone(asked.store, side.where.run, policy, left), side.title, f"play{side.letter}")
            )
    if same := like_chance(
        [*policies.values()], asked.say, lambda policy: asked.read(prefers_nothing, policy)
    ):
        notes.append(same)
    return Answer(
        "pays", "Does coordinating pay?", asked.each(lines.__getitem__), blocks, notes, term="Regret"
    )


def play_alone(store: Store, run: str | None, policy: str, models: Sequence[str]) -> str:
    """The command that plays models alone on the tasks of a policy's run, the newest where none is meant."""
    runs = [
        one.run for one in policies_with_episodes(store) if one.policy == policy and run in (None, one.run)
    ]
    plans = [plan for one in runs if isinstance(plan := known_plan(store.runs.get(one)), BatchPlan)]
    words = [word for model in models for word in ("--policy", f"{SINGLE}{model}")]
    of = asdict(plans[0]) if plans else {"tasks": "…"}
    for name in ("tasks", "split", "n", "seed", "turns", "protocol", "pool"):
        if of.get(name) is not None:
            words += [f"--{name}", str(of[name])]
    return plain(
        " ".join(["trinity", "run", *(word if word == "…" else shlex.quote(word) for word in words)])
    )


def _shown(found: Regret) -> list[Contestant]:
    """The contestants, best first; the upper bound only where there are several to choose from."""
    alone = [one for one in found.contestants if one.name is not None]
    return sorted(alone if len(alone) == 1 else found.contestants, key=lambda one: -one.accuracy.mean)


def _against(asked: Asked, side: Side, found: Regret) -> list[Block]:
    shown = _shown(found)
    names = {one.name: ORACLE if one.name is None else asked.say(one.name) for one in shown}
    ahead = [Line(names[one.name], Estimate.of(one.ahead), plain=one.ahead.low <= 0) for one in shown]
    solved = [Line(names[one.name], Estimate.of(one.accuracy), plain=True) for one in shown]
    place = sum(one.accuracy.mean > found.accuracy.mean for one in shown)
    own = Line(asked.say(found.policy), Estimate.of(found.accuracy))
    title = f"{side.letter} · {asked.say(found.policy)}" if side.letter else ""
    blocks: list[Block] = [
        Estimates(ahead, "points ahead on the same tasks", True, title, f"ahead{side.letter}"),
        Estimates(
            [*solved[:place], own, *solved[place:]],
            f"share solved of the {found.tasks:,} tasks that all have played",
            key=f"solved{side.letter}",
        ),
    ]
    if found.missed:
        blocks.append(_missed(found.missed, side.letter))
    return blocks


def _missed(missed: Sequence[MissedTask], letter: str) -> Table:
    return Table.of(
        missed,
        Column("pair", "Both episodes", "link", _pair, link="Side by side"),
        Column("task", "Task", "id", lambda one: one.task_id),
        Column("question", "Question", get=lambda one: one.question),
        Column("ours", "Right here", get=lambda one: f"{one.ours.right} of {one.ours.n}"),
        Column("best", "Best model alone", get=lambda one: one.best.removeprefix(SINGLE)),
        Column("theirs", "Right there", get=lambda one: f"{one.theirs.right} of {one.theirs.n}"),
        title=f"Tasks where a model alone did better ({len(missed)}{'+' * (len(missed) == 50)})",
        key=f"missed{letter}",
    )


def _pair(one: MissedTask) -> Address:
    ours = one.ours.wrong_episode or one.ours.right_episode
    return Address("pair", {"a": ours, "b": one.theirs.right_episode or one.theirs.wrong_episode})


def _against_notes(asked: Asked, found: Regret) -> list[Block]:
    """Under which setting, with whom left out, and what the upper bound is."""
    notes: list[Block] = [_UPPER_BOUND] if any(one.name is None for one in _shown(found)) else []
    name, others = asked.say(found.policy), len(found.settings) - 1
    if others > 0:
        notes.append(
            f"All under one setting: {setting_words(found.settings[0], found.settings)}. {name} was played under "
            f"{others} more, which {'is' if others == 1 else 'are'} left out; filter by budget, protocol or pool to "
            f"see {'it' if others == 1 else 'them'}."
        )
    if found.left_out:
        left = ", ".join(f"{asked.say(policy)} ({n:,})" for policy, n in found.left_out.items())
        notes.append(f"Left out, because they share too few tasks: {left}.")
    return notes


def verdict(found: Regret, asked: Asked, *, whole_pool: bool) -> str:
    """The answer in one sentence. `whole_pool`: every model of the pool was played alone."""
    alone = [one for one in found.contestants if one.name is not None]
    best = max(alone, key=lambda one: one.accuracy.mean)
    ahead = best.ahead
    name, other = asked.say(found.policy), (best.name or "").removeprefix(SINGLE)
    points = (
        f"{abs(100 * ahead.mean):.1f} points (95 % {signed_points(ahead.low)} to {signed_points(ahead.high)})"
    )
    if whole_pool:
        other = f"the best model alone, {other},"
    elif len(alone) == 1:
        other = f"{other}, the only model that has been played alone on these tasks,"
    else:
        other = f"{other}, the best of the {len(alone)} models that have been played alone on these tasks,"
    if ahead.low > 0:
        return f"Yes. {name} solves more than {other} by {points}."
    if ahead.high < 0:
        return f"No. {name} solves less than {other} by {points}."
    return f"Not enough to tell. {name} and {other} differ by {points}."


def luck(asked: Asked) -> Answer:
    """A task that one policy played several times, as a tree, and the others like it."""
    side, question = asked.sides[-1], "Where does luck enter?"
    tasks = asked.read(replicated_tasks, side.where)
    chosen = asked.choices.get("task") or (tasks[0].task_id if tasks else "")
    policy = side.where.policy or next((one.policy for one in tasks if one.task_id == chosen), None)
    found = asked.read(replicates, side.where, policy, chosen) if policy and chosen else []
    if not tasks and len(found) < 2:
        command = Code("trinity run --policy … --tasks … --seed 1")
        said = "No policy has played a task more than once here. Play the same file of tasks again with another seed."
        return Answer("luck", question, said, [command])
    options = {one.task_id: one_line(one.question, 80) for one in tasks}
    task = asked.choice("task", "Task", {chosen: chosen, **options}, chosen, "list")
    said = "This task has not been played more than once by one policy of this selection."
    blocks: list[Block] = []
    if len(found) > 1 and policy:
        right = right_words([one.correct for one in found])
        said = (
            f"{asked.say(policy)} played this task {len(found)} times, {right}: {options.get(chosen, chosen)}"
        )
        blocks = [
            Tree([Path(one.moves, one.correct, one.models) for one in found]),
            Table.of(
                found,
                Column(
                    "open",
                    "Open",
                    "link",
                    lambda one: Address("replay", {"ep": one.episode_id}),
                    link="Replay",
                ),
                Column("episode", "Episode", "id", lambda one: one.episode_id),
                Column("answer", "Answer", get=lambda one: mark_words(correct_mark(one.correct))),
                Column("turns", "Turns", get=lambda one: strip_text(one.strip)),
                key="episodes",
            ),
        ]
    blocks.append(
        Table.of(
            tasks,
            Column(
                "open", "Tree", "link", lambda one: asked.here("routing", task=one.task_id, policy=one.policy)
            ),
            Column("question", "Question", get=lambda one: one.question),
            Column("policy", "Policy", get=lambda one: asked.say(one.policy)),
            Column("n", "Played", "count", lambda one: one.n),
            Column("right", "Right", "count", lambda one: one.right),
            title="Tasks played several times, those with the most mixed outcome first",
            key="tasks",
        )
    )
    tree = (
        "From top to bottom, turn by turn: episodes stay together while they make the same moves; the last cell says "
        "how they ended. Width is how many. A click on a cell enlarges it."
    )
    return Answer("luck", question, said, blocks, [tree], choices=[task])


def without(asked: Asked) -> Answer:
    """What would be picked if some models could not be."""
    side = asked.sides[-1]
    models = tuple(asked.read(pool_order, side.where))
    off = asked.choice("off", "Leave out", {model: model for model in models}, look="several")
    left_out = tuple(off.value.split(",")) if off.value else ()
    blocks: list[Block] = []
    if left_out and len(left_out) == len(models):
        said = "No model is left to choose from: keep at least one."
    elif left_out:
        found = asked.read(without_models, side.where, left_out)
        said, blocks = _without_words(left_out, found), [_takers(found)] if found.takers else []
    else:
        each = asked.read(without_each_model, side.where, models)
        some = any(one.turns for one in each.values())
        said, blocks = (_least_missed(each), [_each(each)]) if some else (_NO_LOGITS, [])
    notes = [
        _ONLY_PLAYING,
        *["Forks and live plays are not counted."] * (for_totals(side.where).forks == "without"),
    ]
    return Answer(
        "without",
        "What if a model were not there?",
        asked.alone(side).each(lambda _: said),
        blocks,
        notes,
        choices=[off],
        ways=[Way("Episodes of this selection", side.listed())],
    )


def _least_missed(found: dict[str, Without]) -> str:
    name, least = next(iter(found.items()))
    return (
        f"{name} would be missed least: {percent(least.changed / least.turns)} of {least.turns:,} picks would change. "
        "Leave out one to see who would step in."
    )


def _each(found: dict[str, Without]) -> Table:
    return Table.of(
        found.items(),
        Column("model", "Without", get=lambda one: one[0]),
        Column("share", "Picks that would change", "part", lambda one: one[1].changed / (one[1].turns or 1)),
        Column("changed", "Picks", "count", lambda one: one[1].changed),
        Column("touched", "Episodes touched", "count", lambda one: one[1].touched),
        Column("of", "Of episodes", "share", lambda one: one[1].touched / (one[1].episodes or 1)),
    )


def _without_words(off: Sequence[str], found: Without) -> str:
    if not found.turns:
        return _NO_LOGITS
    return (
        f"Without {', '.join(off)}, {found.changed:,} of {found.turns:,} picks would change "
        f"({percent(found.changed / found.turns)}), in {found.touched:,} of {found.episodes:,} episodes "
        f"({percent(found.touched / found.episodes)})."
    )


def _takers(found: Without) -> Table:
    total = sum(found.takers.values()) or 1.0
    help = f"Of the others, renormalised, over {found.read:,} picks that change"
    return Table.of(
        found.takers.items(),
        Column("model", "Who would step in", get=lambda one: one[0]),
        Column("share", "Probability of being picked instead", "part", lambda one: one[1] / total, help),
        key="takers",
    )
