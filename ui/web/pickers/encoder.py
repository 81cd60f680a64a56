"""Choosing what reads the transcripts: one of the encoders that are here, or any other by its folder or hub id; and on
which device, in which numbers it reads; and the engine that calls are made by."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import streamlit as st

from core.fields import settings_of, values_of
from core.settings import LOCAL_ENGINE, POCKET_POOL, RAY_ENGINE, Computing, Settings
from core.tokens.shelf import shelved
from storage.store import Store
from ui.presentation.runs import engine_words
from ui.presentation.theme import one_line
from ui.runs import wiring
from ui.runs.plans import ForkPlan, LivePlan
from ui.runs.policies import pupil_of
from ui.runs.settings import absolute_encoder
from ui.web.kit import state
from ui.web.kit.fields import draw

P = TypeVar("P", ForkPlan, LivePlan)
#: What stands for no encoder: each checkpoint reads with its own.
OWN = "the checkpoint's own"


def choose_encoder(
    form: str, settings: Settings, *, own: bool = False, address: bool = False, **look: Any
) -> str | None:
    """The encoder that the reader chooses or types, a folder by its whole path; at first the one that is set, else
    pocket for the pocket pool. None until one is named, or with `own` where each checkpoint is to read with its own,
    which is then offered first. `form`: how the key of the widget begins; `address`: the choice stands there as
    `encoder`; `look`: further arguments of it."""
    key, named = f"{form}_encoder", state.param("encoder") if address else None
    names = [*([OWN] if own else []), POCKET_POOL, *(one.name for one in shelved(settings.data_folder))]
    usual = settings.encoder or (OWN if own else POCKET_POOL if settings.pool == POCKET_POOL else None)
    names += [one for one in dict.fromkeys((usual, named)) if one and one not in names]
    if address:
        st.session_state[key] = named or usual

        def write() -> None:
            new = str(state.entered(key) or "").strip()
            state.set_params(encoder=None if new == usual else new)

        look["on_change"] = write
    else:
        look["index"] = names.index(usual) if usual else None
    chosen = st.selectbox(
        "Encoder",
        names,
        key=key,
        format_func=lambda name: one_line(str(name), 60),
        accept_new_options=True,
        placeholder="A name, a folder or a hub id",
        help="The small language model that reads the transcripts: one that is here, or type a folder or a hub id. "
        "`trinity encoders add smollm2` brings one.",
        **look,
    )
    chosen = None if chosen in (None, OWN) else str(chosen).strip()
    return absolute_encoder(chosen) if chosen else None


def choose_reader(form: str, settings: Settings, *, own: bool = False, **look: Any) -> Settings:
    """The settings with the encoder that the reader chooses, as `choose_encoder` does, the device and the numbers; at
    first those that are set."""
    encoder, fields = choose_encoder(form, settings, own=own, **look), settings_of(Computing)
    usual = OWN if own else "float32, or bfloat16 on cuda"
    numbers = {"options": (None, *fields["dtype"].choices), "format_func": lambda value: value or usual}
    looks: dict[str, Any] = {"device": look, "dtype": {**look, **numbers}}
    computing = {
        key: draw(column, replace(fields[key], default=value), f"{form}_{key}", **looks[key])
        for column, (key, value) in zip(st.columns(2), values_of(settings.computing).items(), strict=True)
    }
    return replace(settings, encoder=encoder, computing=Computing(**computing))


def choose_reader_for(
    store: Store, policies: Sequence[str], models: Sequence[str], form: str, settings: Settings, **look: Any
) -> Settings:
    """The same where one of these policies reads transcripts or is taught by questions that are read: with its own
    encoder at first where it is a checkpoint. Else nothing is drawn, and the settings stay."""
    own = any(store.checkpoints.has(name) for name in policies)
    pupils = [pupil_of(name, models) for name in policies]
    if not own and not any(one is not None and one.reads for one in pupils):
        return settings
    return choose_reader(form, settings, own=own, **look)


def choose_engine(form: str, usual: str, **look: Any) -> str:
    """The engine that the reader chooses, or types the address of; at first the `usual` one. What was typed is not
    checked: `ray_address` does. `form`, `look`: as in `choose_encoder`."""
    setting = settings_of(ForkPlan)["engine"]
    engines = list(dict.fromkeys((LOCAL_ENGINE, RAY_ENGINE, usual)))
    chosen = st.selectbox(
        setting.title,
        engines,
        index=engines.index(usual),
        key=f"{form}_engine",
        format_func=lambda engine: one_line(engine_words(str(engine)), 60),
        accept_new_options=True,
        placeholder="local, or the address of a Ray cluster",
        help="Where calls are made and small models run: in the run's own process, or also by helpers on a Ray "
        "cluster, of this machine or at the address that you type, such as 10.0.0.1:6379. The results are the same.",
        **look,
    )
    return typed_engine(str(chosen or usual))


def typed_engine(words: str) -> str:
    """An engine as settings name it: an address alone is that of a Ray cluster."""
    words = words.strip()
    if words.lower() in (LOCAL_ENGINE, RAY_ENGINE):
        return words.lower()
    return f"{RAY_ENGINE}={words}" if ":" in words and "=" not in words else words


def with_reader(store: Store, plan: P, policies: Collection[str], form: str) -> P:
    """A plan with the encoder, the device and the numbers that the reader chooses in a fold, where one of these
    policies reads, and with the engine, where its kind has one; at first its own."""
    reads, has_engine = any(store.checkpoints.has(name) for name in policies), isinstance(plan, ForkPlan)
    words = {
        (True, True): "Encoder, device, numbers and engine",
        (True, False): "Encoder, device and numbers",
        (False, True): "Engine",
    }
    if (reads, has_engine) not in words:
        return plan
    with st.expander(words[reads, has_engine], icon=":material/tune:"):
        if reads:
            settings = replace(wiring.settings(), encoder=plan.encoder, computing=plan.computing)
            chosen = choose_reader(form, settings, own=True)
            plan = replace(plan, encoder=chosen.encoder, computing=chosen.computing)
        if isinstance(plan, ForkPlan):
            plan = replace(plan, engine=choose_engine(form, plan.engine))
    return plan
