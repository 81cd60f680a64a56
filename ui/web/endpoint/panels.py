"""The endpoint as Settings shows it: how to ask it, its tiers, and its keys, which can be made and revoked here."""

from __future__ import annotations

import time
from functools import partial

import streamlit as st

from core.errors import TrinityError
from storage.shelves.endpoint import ApiKey, Limits
from storage.store import Store
from ui.endpoint.tiers import EXAMPLE, EXAMPLE_ANSWER, FILE, Endpoint, Offer, Tier, read_endpoint
from ui.presentation.theme import label, one_line, percent
from ui.presentation.words import ago, dollars
from ui.runs import wiring
from ui.runs.paper.results import shipped
from ui.web.kit import state
from ui.web.kit.tables import number, row_table, text
from ui.web.kit.widgets import button, nothing_here

_NEW, _NAME, _CEILING = "endpoint_new_key", "endpoint_key_name", "endpoint_key_ceiling"


def endpoint_panel(store: Store) -> None:
    """How to ask, what can be asked for, and who may."""
    chosen = wiring.settings()
    try:
        endpoint = read_endpoint(None, chosen.data_folder)
    except TrinityError as error:
        state.failed(str(error))
        return
    st.markdown("**How to ask it**, from this machine, with any client of OpenAI's API")
    st.code(_example(chosen.port, endpoint.tier[0].name), language="sh", wrap_lines=True)
    if wiring.settings().pool == "pocket":
        st.caption(f"The right answer is {EXAMPLE_ANSWER}.")
    st.caption(
        "Each request is an episode: it appears under Episodes while it runs. `trinity serve --help` tells how to "
        "serve the same on an address of its own."
    )
    st.markdown("**What can be asked for**")
    row_table(
        {
            "name": "Model",
            "policy": text("Who decides"),
            "turns": number("Turns"),
            "models": "Chooses among",
            "deadline": "Deadline",
            "ceiling": "Ceiling of a request",
        },
        [_tier_row(store, endpoint, tier) for tier in endpoint.tier],
        key="endpoint_tiers",
    )
    _validations(store, endpoint)
    if worth := _worth_of_turns():
        st.caption(worth)
    st.caption(
        f"Tiers are written into {label(str(chosen.data_folder / FILE), 300)}; `trinity serve --write-config FILE` "
        "writes one with comments."
    )
    _keys(store)


def _example(port: int, model: str) -> str:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "{EXAMPLE}"}}]}}'
    return f"curl http://127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\\n  -d '{body}'"


def _validations(store: Store, endpoint: Endpoint) -> None:
    """What is known of the checkpoints that decide, with a warning where a single model is known to be better."""
    try:
        offer = Offer(endpoint, wiring.pool_specs(wiring.settings().pool), store)
        deciders = dict.fromkeys(offer.policy_of(tier) for tier in endpoint.tier)
    except TrinityError:
        return  # the tiers' rows say it
    for policy in deciders:
        if not store.checkpoints.has(policy):
            continue
        found = offer.validated(policy)
        if found is None:
            st.caption(f"Checkpoint {label(policy, 60)} was never validated.")
        elif found.is_behind:
            st.warning(
                f"Checkpoint {label(policy, 60)} is behind the best single model: {label(found.words, 300)}."
            )
        else:
            st.caption(f"Checkpoint {label(policy, 60)}: {label(found.words, 300)}.")


def _worth_of_turns() -> str:
    """What the turns of a tier are worth in the small world, as it was measured; empty where nothing was."""
    try:
        found = shipped()
    except TrinityError:
        return ""  # Results says why
    shares = {one.row: one.value.mean for one in found.rows if one.measure == "accuracy"} if found else {}
    told = [
        f"{percent(share)} with {turns} turns"
        for turns in (3, 5)
        if (share := shares.get(f"evolved:default {turns} turns")) is not None
    ]
    if len(told) < 2:
        return ""
    return (
        "What turns are worth: in the small world that comes with the program five coordinators solve "
        f"{' and '.join(told)}, of 1,000 test tasks and with all its models. A request may ask for more: effort "
        "`high` gives 6."
    )


def _tier_row(store: Store, endpoint: Endpoint, tier: Tier) -> tuple[object, ...]:
    try:
        offer = Offer(endpoint, wiring.pool_specs(wiring.settings().pool), store)
        policy, among = offer.policy_of(tier), ", ".join(offer.choices(tier))
        among += f" ({words})" if (words := offer.lean_words(tier)) else ""
    except TrinityError as error:
        policy, among = one_line(str(error), 200), ""
    return (
        tier.name,
        policy,
        tier.turns,
        among,
        f"{tier.deadline_s:g} s",
        "none" if tier.max_cost_usd is None else dollars(tier.max_cost_usd),
    )


def _keys(store: Store) -> None:
    st.markdown("**Who may ask it**")
    st.caption(
        "On this machine's own address no key is needed. On any other every request needs one; each has limits of its "
        "own, and what was asked with it is counted here."
    )
    if told := st.session_state.pop(_NEW, None):
        st.success("Keep this key: it is shown this once and cannot be read again.", icon=":material/key:")
        st.code(told, language=None, wrap_lines=True)
    keys, now = store.endpoint.keys(), time.time()
    if keys:
        row_table(
            {
                "name": text("Key", pinned=True),
                "state": "",
                "requests": number("Requests", "localized"),
                "cost": "Cost",
                "ceiling": "Ceiling",
                "turns": number("Most turns"),
                "deadline": "Deadline",
                "without": "Does without",
                "used": "Last used",
            },
            [_key_row(one, now) for one in keys],
            key="endpoint_keys",
        )
    else:
        nothing_here("There is no key yet.", icon=":material/key_off:")
    if store.read_only:
        return
    with st.form("endpoint_key", border=False):
        columns = st.columns([4, 3, 2], vertical_alignment="bottom")
        columns[0].text_input("What the new key is for", key=_NAME, max_chars=80)
        columns[1].number_input(
            "Ceiling in US dollars (empty: none)", min_value=0.0, value=None, key=_CEILING
        )
        with columns[2]:
            st.form_submit_button("Make a key", on_click=partial(_make, store), icon=":material/key:")
    valid = {one.id: f"{one_line(one.name, 40)} ({one.id})" for one in keys if one.revoked is None}
    if valid:
        columns = st.columns([4, 5], vertical_alignment="bottom")
        with columns[0]:
            which = st.selectbox(
                "Revoke",
                list(valid),
                format_func=lambda key: label(valid[key], 60),
                index=None,
                key="endpoint_revoke",
            )
        with columns[1]:
            button(
                "Revoke it",
                "endpoint_revoke_now",
                partial(_revoke, store, which),
                icon="block",
                disabled=not which,
            )


def _key_row(one: ApiKey, now: float) -> tuple[object, ...]:
    limits = one.limits
    return (
        one_line(one.name, 60),
        "valid" if one.revoked is None else f"revoked {ago(one.revoked, now)}",
        one.requests,
        dollars(one.charged_usd),
        "none" if limits.max_cost_usd is None else dollars(limits.max_cost_usd),
        limits.max_turns,
        "" if limits.deadline_s is None else f"{limits.deadline_s:g} s",
        ", ".join(limits.leave_out),
        ago(one.last_used, now) if one.last_used else "never",
    )


def _make(store: Store) -> None:
    name, ceiling = st.session_state[_NAME], st.session_state[_CEILING]
    try:
        _, st.session_state[_NEW] = store.endpoint.add_key(name, Limits(max_cost_usd=ceiling))
    except TrinityError as error:
        st.toast(label(str(error), 200), icon=":material/error:")
        return
    st.session_state[_NAME], st.session_state[_CEILING] = "", None


def _revoke(store: Store, key: str | None) -> None:
    if key:
        store.endpoint.revoke(key)
        st.session_state["endpoint_revoke"] = None
