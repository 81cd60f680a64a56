"""The form of a fork: what is kept, what is changed, what will be played and what it may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from core.analysis.power import pairs_to_see
from core.changes import Change, ChangeKind
from core.episode import Episode, Role, Verdict
from core.errors import ConfigError, TrinityError
from core.fields import settings_of
from core.play.forked_steps import ForkedStep, forked_step
from core.play.forking import (
    decider_of_turn,
    forked_turn,
    possible_changes,
    prefix_digest,
    turns_left,
)
from core.play.session import visible_text
from core.pool.spec import ModelSpec
from core.settings import POCKET_POOL, ray_address
from storage.reads import forks
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.steps import KIND_MEANS, KIND_WORDS, STEP_MEANS
from ui.presentation.theme import ROLE_STYLES, label, one_line
from ui.presentation.words import turns_words
from ui.runs import wiring
from ui.runs.forks.planning import (
    PLACES,
    find_turns,
    place_in_address,
    plan_forks,
    pool_of,
    reach_words,
    runner_up_change,
)
from ui.runs.forks.results import RULE, seen_words
from ui.runs.plans import ForkPlan
from ui.runs.settings import is_recorded
from ui.runs.settings.forks import MOST_EPISODES, ForkSettings
from ui.runs.spending import paid_models, price
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.fields import draw
from ui.web.kit.text import text_block
from ui.web.kit.widgets import tool
from ui.web.pickers.checkpoints import playable, policy_label
from ui.web.pickers.encoder import with_reader
from ui.web.progress import spending

Pick = tuple[str, int]


#: Differences (shares) that a click on the form makes the numbers large enough for.
DIFFERENCES = (0.3, 0.4, 0.5)

#: What can be changed in every episode of a batch.
_IN_EACH: tuple[ChangeKind, ...] = ("model", "role", "policy", "temperature", "stop")
_IN_EACH_STEP: tuple[ChangeKind, ...] = ("model", "subtask")


def choose_change(
    store: Store, parent: Episode, index: int, specs: Sequence[ModelSpec] = (), *, batch: bool = False
) -> Change:
    """What is changed at this turn, whose kind and value stand in the address. In a `batch`, of which `parent` is the
    first, it is changed in every episode, so that what is recorded in one of them may be chosen too."""
    turn = forked_turn(parent, index)
    model, role = turn.decision.model, turn.decision.role
    step = forked_step(parent, index)
    likely = None if batch else runner_up_change(parent, index)
    in_each = ("model", "verdict", *_IN_EACH[1:]) if role is Role.VERIFIER else _IN_EACH
    in_each = in_each if step is None else _IN_EACH_STEP
    kinds = in_each if batch else possible_changes(parent, index)
    kind = _kind(kinds, STEP_MEANS if step else KIND_MEANS, likely.kind if likely else None)
    to = likely.value if likely and likely.kind == kind else None
    if to and state.param("change") in (None, kind) and state.param("to") in (None, to):
        st.caption("This is the runner-up: the likeliest other choice of its decision.")
    match kind:
        case "model":
            others = {name: one_line(name, 40) for name in parent.models if batch or name != model}
            return Change(kind, _one_of("Played by", others, default=to))
        case "role":
            roles = {one.value: look.word for one, look in ROLE_STYLES.items() if batch or one is not role}
            return Change(kind, _one_of("Played as", roles, default=to))
        case "policy":
            return Change(kind, _policy(store, parent, index))
        case "temperature":
            spec = next((one for one in specs if one.name == model), None)
            return Change(kind, _temperature(spec, role))
        case "subtask" if step is not None:
            key = f"fork_subtask_{parent.id}_{index}"
            given = step.workflow.subtasks[step.place]
            return Change(
                kind, st.text_area("What the step is asked", given, key=key, height=110, max_chars=100_000)
            )
        case "access" if step is not None:
            return Change(kind, _access(step))
        case "reply":
            key = f"fork_reply_{parent.id}_{index}"
            words = "The reply as it shall be"
            return Change(kind, st.text_area(words, turn.reply.text, key=key, height=160, max_chars=100_000))
        case "verdict" if batch:
            verdicts = {verdict.value: verdict.value for verdict in list(Verdict)[::-1]}
            return Change(kind, _one_of("The Verifier says", verdicts))
        case "verdict":
            other = Verdict.REVISE if turn.verdict is Verdict.ACCEPT else Verdict.ACCEPT
            st.markdown(f"The Verifier says **{other}** instead.")
            return Change(kind, other)
    if not batch:
        st.markdown("The answer before this turn is final.")
    return Change("stop")


def _access(step: ForkedStep) -> str:
    workflow, models = step.workflow, step.parent.models
    turns = {str(step.first + earlier + 1): workflow.models[earlier] for earlier in range(step.place)}
    asked = {turn: f"turn {turn} · {label(models[slot], 30)}" for turn, slot in turns.items()}
    chosen = st.pills(
        "Turns that it may read",
        list(asked),
        default=step.access().split(",") if step.access() else None,
        selection_mode="multi",
        format_func=asked.__getitem__,
        key=f"fork_access_{step.parent.id}_{step.index}",
        help="The problem itself is read by every step.",
    )
    return ",".join(sorted(chosen, key=int))


def _kind(
    kinds: Sequence[ChangeKind], means: Mapping[ChangeKind, str], default: ChangeKind | None
) -> ChangeKind:
    options: dict[str, str] = {kind: KIND_WORDS[kind] for kind in kinds}
    before = state.param("change")
    chosen = state.address_select("What to change", options, name="change", key="fork_kind", default=default)
    if before is not None and before not in options:
        st.caption(f"{label(before, 20)} makes no sense at this turn: choose one of these.")
    kind: ChangeKind = next(one for one in kinds if one == chosen)
    st.caption(means[kind])
    return kind


def _one_of(
    words: str, options: Mapping[str, str], help: str | None = None, *, default: str | None = None
) -> str:
    """One of the options (value -> its words); the choice stands in the address as `to`."""
    return state.address_select(
        words, options, name="to", key=f"fork_to_{words}", default=default, widget="list", help=help
    )


def _policy(store: Store, parent: Episode, index: int) -> str:
    named, own = policy_label(store), decider_of_turn(parent, index)
    others = {name: one_line(named(name), 90) for name in playable(store, parent.models) if name != own}
    return _one_of("Decided by", others, define("Policy"))


def _temperature(spec: ModelSpec | None, role: Role) -> str:
    usual = spec.temperature_in(role) if spec else None
    if usual is not None:
        st.caption(f"It was asked at {usual:g}, as its pool entry says for this role.")
    value = st.number_input(
        "Temperature", 0.0, 2.0, 0.0 if usual else 1.0, step=0.1, key="fork_temperature", format="%.1f"
    )
    return f"{value:g}"


# How much of it, and what it costs


def choose_numbers() -> dict[str, Any]:
    """How many forks, how often the baseline, and whether what stands already is played anew: settings by key."""
    fields = settings_of(ForkSettings)
    left, right = st.columns(2)
    enough, below = st.container(), st.container()
    chosen = {
        key: draw(place, fields[key], f"fork_{key}", persist_state="session")
        for key, place in (("n", left), ("baseline", right), ("anew", below))
    }
    with enough:
        _enough_to_see(min(chosen["n"], chosen["baseline"]))
    return chosen


def _enough_to_see(pairs: int) -> None:
    st.caption(seen_words(pairs))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Enough to detect", width="content")
        for difference in DIFFERENCES:
            needed = pairs_to_see(difference)
            help = f"Sets both numbers to {needed}, which detects such a difference with 80 % power."
            tool(
                f"{100 * difference:.0f} points",
                f"fork_see_{100 * difference:.0f}",
                partial(st.session_state.update, fork_n=needed, fork_baseline=needed),
                help=help,
            )


def planned(
    store: Store, picks: Sequence[Pick], change: Change, numbers: Mapping[str, Any], *, batch: str = ""
) -> tuple[ForkPlan | None, str]:
    """The plan of the form, with its `numbers`, or why there is none yet."""
    settings = wiring.settings()
    try:
        pool = pool_of(store, store.episodes.get(picks[0][0]), settings.pool)
        more: dict[str, Any] = {
            "pool": pool,
            "specs": pool_specs(pool),
            "encoder": settings.encoder,
            "batch": batch,
        }
        return plan_forks(store, picks, change, **numbers, **more), ""
    except TrinityError as error:
        return None, str(error)


def what_will_run(store: Store, plan: ForkPlan) -> tuple[ForkPlan, str]:
    """Say what is played and what it may cost; the plan with its ceiling and who reads, and what has to be done before
    anything may start."""
    specs = pool_specs(plan.pool)
    parents = forks.parents(store, [branch.parent for branch in plan.branches])
    quote = price(store, plan, specs)
    most = quote.most
    plays = any(turns_left(parents[one.parent], one.turn, plan.change_at(one)) for one in plan.branches)
    forked = sum(one.n for one in plan.branches)
    base = sum(one.baseline for one in plan.branches)
    stand = sum(len(one.reused) for one in plan.branches)
    repeat = "repeats the recorded turn" if base == 1 else "repeat the recorded turn"
    if plan.change is not None and plan.change.kind == "policy":
        repeat = "decides" if base == 1 else "decide"
        repeat += " the turn again by its own policy"
    if any(one.anew for one in plan.branches):
        repeat = "repeats" if base == 1 else "repeat"
        repeat += " the recorded step and every step that reads it"
    lines = [
        f"**{base}** control play{'' if base == 1 else 's'} that {repeat}.",
        f"**{forked}** fork{'' if forked == 1 else 's'}, each with the same random draws as its control play."
        if plays
        else f"**{forked}** fork{'' if forked == 1 else 's'}: nothing is left to chance, so one per turn is enough.",
    ]
    if plan.asks_luck:
        lines = [RULE]
    if stand:
        lines.append(
            f"**{stand}** of these {'is' if stand == 1 else 'are'} in the store already: not played again."
        )
    if plan.skipped:
        lines.append(
            f"**{plan.skipped}** {'turn' if plan.every_turn else 'episode'}{'' if plan.skipped == 1 else 's'} left "
            "out: the change makes no sense or changes nothing there."
        )
    if cannot := reach_words(plan, parents, specs):
        st.warning(label(cannot, 400), icon=":material/block:")
    lines.append(f"Replies: {label(_source_words(plan.pool, specs, bool(most.calls)), 200)}.")
    lines.append(f"At most **{most.calls:,}** calls" + ("." if quote.is_paid else ", **free**."))
    st.markdown("\n".join(f"- {line}" for line in lines))
    if not most.calls:
        return plan, ""
    plan = with_reader(store, plan, _players(plan, parents), "fork")
    try:
        ray_address(plan.engine)
    except ConfigError as error:
        return plan, str(error)
    ceiling, to_do = spending(quote, wiring.settings().max_cost_usd, key="fork_max_cost")
    return replace(plan, max_cost_usd=ceiling), to_do


def _players(plan: ForkPlan, parents: Mapping[str, Episode]) -> set[str]:
    """The policies that play on."""
    changes = {plan.change, *(one.change for one in plan.branches)}
    changed = {one.value for one in changes if one is not None and one.kind == "policy"}
    return changed.union(*({one.policy, *one.deciders.values()} for one in parents.values()))


def _source_words(pool: str, specs: tuple[ModelSpec, ...], plays: bool) -> str:
    if not plays:
        return "recorded ones only: no model is asked"
    if pool == POCKET_POOL:
        return "recorded where turns are kept, else of the pocket models in this app: free"
    if is_recorded(pool):
        return f"recorded, of {one_line(pool, 80)}: no model is called"
    free = "" if paid_models(specs) else ": free"
    return f"recorded where turns are kept, else live calls to the models of {one_line(pool, 80)}{free}"


# Many at once


def choose_batch(store: Store) -> tuple[str, list[Pick]]:
    """The episodes a batch is about: by the filter in the address, at most so many. ConfigError for another."""
    batch = state.param("batch") or ""
    most = st.number_input(
        "At most so many episodes, newest first",
        1,
        MOST_EPISODES,
        state.int_param("most", 1, MOST_EPISODES, 20),
        key="fork_most",
        on_change=lambda: state.set_params(most=state.entered("fork_most")),
    )
    state.select(
        "Which turn of each is forked",
        PLACES,
        place_in_address(batch) or None,
        lambda place: state.set_params(batch=urlencode({**dict(parse_qsl(batch)), "at": place or ""})),
        key="fork_place",
    )
    picks = find_turns(store, batch, int(most))
    conditions = ", ".join(
        f"{label(name, 20)} {label(value, 40)}" for name, value in parse_qsl(batch) if name != "at"
    )
    st.markdown(f"**{len(picks)}** episodes found by {conditions} have such a turn.")
    return batch, picks


def kept_words(parent: Episode, index: int) -> None:
    """What stays as it is; the hash that proves it stands in the tooltip."""
    step = forked_step(parent, index)
    kept = [turn.index for turn in step.kept] if step else range(index)
    unchanged = "Nothing comes before it" if step is None else "No step keeps what it said"
    if kept:
        which = turns_words(kept) if step or len(kept) == 1 else f"turns 1 to {index}"
        unchanged = f"{which.capitalize()} {'stays as it is' if len(kept) == 1 else 'stay as they are'}"
    if step:
        unchanged += f", {turns_words(step.anew)} {'is' if len(step.anew) == 1 else 'are'} asked again"
    prefix = prefix_digest(parent, index)[:16]
    st.markdown(f":material/lock: {unchanged}.", help=f"{define('Prefix hash')} Here it is `{prefix}`.")
    if step and any(plan.round > step.round for plan in parent.plans):
        st.caption("Later rounds of its planner are left out, of forks and baseline alike.")
    st.caption("The recorded episode is only read: forks are episodes of their own.")


def as_it_was(parent: Episode, index: int) -> None:
    """The turn as it was recorded."""
    turn = forked_turn(parent, index)
    look = ROLE_STYLES[turn.decision.role]
    verdict = f" · **{turn.verdict}**" if turn.verdict else ""
    st.markdown(
        f"**Turn {index + 1} as it was:** {look.shape} {look.word} **{label(turn.decision.model, 40)}**{verdict}"
    )
    text_block(visible_text(turn.reply), key=f"fork_was_{parent.id}_{index}")
