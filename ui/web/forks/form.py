"""The form of a fork: what is kept, what is changed, what will be played and what it may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from core.episode import Change, ChangeKind, Episode, Role, Verdict
from core.errors import TrinityError
from core.play.forking import decided_by, forked_turn, possible_changes, turns_left
from core.pool.spec import ModelSpec
from storage.reads import forks
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import ROLE_STYLES, label
from ui.runs import wiring
from ui.runs.fork_planning import (
    MOST_CHILDREN,
    MOST_EPISODES,
    PLACES,
    found_by,
    place_in_address,
    plan_forks,
    pool_of,
)
from ui.runs.plans import ForkPlan
from ui.runs.spending import price
from ui.web.forks.words import KIND_MEANS, KIND_WORDS, source_words
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.text import text_block
from ui.web.pickers.checkpoints import playable, policy_label
from ui.web.progress.ceiling import spending

Pick = tuple[str, int]


def choose_change(store: Store, parent: Episode, index: int, specs: Sequence[ModelSpec]) -> Change:
    """What is changed at this turn: the kind and the value stand in the address."""
    kinds = possible_changes(parent, index)
    kind = _kind(kinds)
    turn = forked_turn(parent, index)
    recorded = turn.decision
    match kind:
        case "model":
            others = {name: label(name, 40) for name in parent.models if name != recorded.model}
            return Change(kind, _one_of("Played by", others))
        case "role":
            return Change(kind, _role(recorded.role))
        case "policy":
            return Change(kind, _policy(store, parent, index))
        case "temperature":
            spec = next((one for one in specs if one.name == recorded.model), None)
            return Change(kind, _temperature(spec, recorded.role))
        case "reply":
            return Change(kind, _reply(f"{parent.id}_{index}", turn.reply.text))
        case "verdict":
            other = Verdict.REVISE if turn.verdict is Verdict.ACCEPT else Verdict.ACCEPT
            st.markdown(f"The Verifier says **{other}** instead.")
            return Change(kind, other)
    st.markdown("The answer before this turn is final.")
    return Change("stop")


def choose_change_for_all(store: Store, parent: Episode, index: int) -> Change:
    """What is changed in every episode of a batch; `parent` is the first of them."""
    turn = forked_turn(parent, index)
    kinds: tuple[ChangeKind, ...] = ("model", "role", "policy", "temperature", "stop")
    if turn.decision.role is Role.VERIFIER:
        kinds = ("model", "verdict", "role", "policy", "temperature", "stop")
    match _kind(kinds):
        case "model":
            return Change("model", _one_of("Played by", {name: label(name, 40) for name in parent.models}))
        case "role":
            return Change("role", _role(None))
        case "policy":
            return Change("policy", _policy(store, parent, index))
        case "temperature":
            return Change("temperature", _temperature(None, turn.decision.role))
        case "verdict":
            return Change(
                "verdict",
                _one_of(
                    "The Verifier says", {verdict.value: verdict.value for verdict in list(Verdict)[::-1]}
                ),
            )
    return Change("stop")


def _kind(kinds: Sequence[ChangeKind]) -> ChangeKind:
    options: dict[str, str] = {kind: KIND_WORDS[kind] for kind in kinds}
    before = state.param("change")
    chosen = state.address_select("What to change", options, name="change", key="fork_kind")
    if before is not None and before not in options:
        st.caption(f"{label(before, 20)} makes no sense at this turn: choose one of these.")
    kind: ChangeKind = next(one for one in kinds if one == chosen)
    st.caption(KIND_MEANS[kind])
    return kind


def _one_of(words: str, options: Mapping[str, str], help: str | None = None) -> str:
    """One of the options (value -> its words); the choice stands in the address as `to`."""
    return state.address_select(words, options, name="to", key=f"fork_to_{words}", widget="list", help=help)


def _role(recorded: Role | None) -> str:
    others = {role.value: look.word for role, look in ROLE_STYLES.items() if role is not recorded}
    return _one_of("Played as", others)


def _policy(store: Store, parent: Episode, index: int) -> str:
    named, own = policy_label(store), decided_by(parent, index)
    others = {name: label(named(name), 90) for name in playable(store, parent.models) if name != own}
    return _one_of("Decided by", others, define("Policy"))


def _temperature(spec: ModelSpec | None, role: Role) -> str:
    usual = spec.temperature_in(role) if spec else None
    if usual is not None:
        st.caption(f"It was asked at {usual:g}, as its pool entry says for this role.")
    value = st.number_input(
        "Temperature", 0.0, 2.0, 0.0 if usual else 1.0, step=0.1, key="fork_temperature", format="%.1f"
    )
    return f"{value:g}"


def _reply(place: str, text: str) -> str:
    return st.text_area(
        "The reply as it shall be", value=text, key=f"fork_reply_{place}", height=160, max_chars=100_000
    )


# How much of it, and what it costs


def choose_numbers() -> tuple[int, int, bool]:
    """How many forks, how often the baseline, and whether what stands already counts."""
    left, right = st.columns(2)
    n = left.number_input("Forks", 1, MOST_CHILDREN, 8, key="fork_n", persist_state="session")
    k = right.number_input(
        "Baseline",
        1,
        MOST_CHILDREN,
        8,
        key="fork_baseline",
        persist_state="session",
        help=define("Baseline"),
    )
    reuse = st.toggle(
        "Use what the store already holds",
        value=True,
        key="fork_reuse",
        help="Children of the same turn, change, pool and seed are not played a second time.",
        persist_state="session",
    )
    return int(n), int(k), bool(reuse)


def planned(
    store: Store, picks: Sequence[Pick], change: Change, numbers: tuple[int, int, bool], *, batch: str = ""
) -> tuple[ForkPlan | None, str]:
    """The plan of the form, or why there is none yet."""
    settings = wiring.settings()
    try:
        first = store.episodes.get(picks[0][0])
        pool = pool_of(store, first, settings.pool)
        plan = plan_forks(
            store,
            picks,
            change,
            n=numbers[0],
            baseline=numbers[1],
            pool=pool,
            specs=pool_specs(pool),
            encoder=settings.encoder,
            reuse=numbers[2],
            batch=batch,
        )
    except TrinityError as error:
        return None, str(error)
    return plan, ""


def what_will_run(store: Store, plan: ForkPlan) -> tuple[float | None, str]:
    """Say what is played and what it may cost; the ceiling, and what has to be done before anything may start."""
    specs = pool_specs(plan.pool)
    parents = forks.parents(store, [branch.parent for branch in plan.branches])
    asked = price(store, plan, specs)
    most = asked.most
    plays = any(turns_left(parents[one.parent], one.turn, plan.change) for one in plan.branches)
    forked = sum(one.n for one in plan.branches)
    base = sum(one.baseline for one in plan.branches)
    stand = sum(len(one.reused) for one in plan.branches)
    lines = [
        f"**{base}** of the baseline first: {_baseline_words(plan.change)}, then as the policy decides.",
        f"**{forked}** fork{'' if forked == 1 else 's'} after it, each with the same random draws as its baseline."
        if plays
        else f"**{forked}** fork{'' if forked == 1 else 's'}: nothing is left to chance, so one per turn is enough.",
    ]
    if stand:
        lines.append(f"**{stand}** of these stand in the store already and are not played again.")
    if plan.skipped:
        lines.append(
            f"**{plan.skipped}** episodes are left out: the change makes no sense or changes nothing there."
        )
    lines.append(f"Replies: {label(source_words(plan.pool, specs, bool(most.calls)), 200)}.")
    lines.append(f"At most **{most.calls:,}** calls" + ("." if asked.is_paid else ", **free**."))
    st.markdown("\n".join(f"- {line}" for line in lines))
    if not most.calls:
        return None, ""
    return spending(asked, wiring.settings().max_cost_usd, key="fork_max_cost")


def _baseline_words(change: Change) -> str:
    if change.kind == "policy":
        return "the turn is decided anew by its own policy"
    return "the turn is asked again just as it was decided"


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
        on_change=lambda: state.set_params(most=st.session_state["fork_most"]),
    )
    state.select(
        "Which turn of each is forked",
        PLACES,
        place_in_address(batch) or None,
        lambda place: state.set_params(batch=_at(batch, place)),
        key="fork_place",
    )
    picks = found_by(store, batch, int(most))
    conditions = ", ".join(
        f"{label(name, 20)} {label(value, 40)}" for name, value in parse_qsl(batch) if name != "at"
    )
    st.markdown(f"**{len(picks)}** episodes found by {conditions} have such a turn.")
    return batch, picks


def _at(batch: str, place: str | None) -> str:
    """The batch's address with another turn to fork."""
    return urlencode({**dict(parse_qsl(batch)), "at": place or ""})


def kept_words(parent: Episode, index: int, prefix: str) -> None:
    """What stays as it is, with the hash that proves it."""
    kept = "Nothing comes before it" if index == 0 else f"Turn{'s' if index > 1 else ''} 1"
    kept += f" to {index} stay as they are" if index > 1 else " stays as it is" if index == 1 else ""
    st.markdown(f":material/lock: {kept}. :gray[Hash `{prefix[:16]}`]", help=define("Prefix hash"))
    st.caption("The recorded episode is only read: forks are episodes of their own.")


def as_it_was(parent: Episode, index: int) -> None:
    """The turn as it was recorded."""
    turn = forked_turn(parent, index)
    look = ROLE_STYLES[turn.decision.role]
    verdict = f" · **{turn.verdict}**" if turn.verdict else ""
    st.markdown(
        f"**Turn {index + 1} as it was:** {look.shape} {look.word} **{label(turn.decision.model, 40)}**{verdict}"
    )
    text_block(turn.reply.text, key=f"fork_was_{parent.id}_{index}")


def with_ceiling(plan: ForkPlan, ceiling_usd: float | None) -> ForkPlan:
    """The plan with what may be spent."""
    return replace(plan, max_cost_usd=ceiling_usd)
