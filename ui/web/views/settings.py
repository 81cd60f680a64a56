"""Settings & health: keys, one's own choices, the store, who works on what, versions and caches.

Which part is read stands in the address as `part`. Everything here is read only, but for what concerns this tab alone,
clearing caches, and making room.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, cast

import streamlit as st
from streamlit.runtime.caching import get_data_cache_stats_provider, get_resource_cache_stats_provider

from core.errors import TrinityError
from core.pool.spec import slots_of
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunStatus, RunSummary
from storage.shelves.endpoint import ApiKey, Limits
from storage.store import Store
from storage.upkeep.retention import WORDS, What, began_before, compact, preview, prune
from storage.upkeep.tables import table_sizes
from ui.answers.pages import ANALYSES
from ui.endpoint.ledger import quota_words
from ui.endpoint.tiers import EXAMPLE, EXAMPLE_ANSWER, FILE, Endpoint, Offer, read_endpoint
from ui.presentation.runs import names_of, retention_words, run_name
from ui.presentation.theme import badge, code, label, one_line, percent, plain
from ui.presentation.words import ago, dollars, label_words, size_words
from ui.program import packages, version
from ui.runs import queue, wiring
from ui.runs.lease import process_words
from ui.runs.paper.results import shipped
from ui.runs.plans import address_of, kind_of
from ui.web.components.transport import Keys, key_table, plain_strip_toggle
from ui.web.kit import state
from ui.web.kit.tables import number, row_table
from ui.web.kit.tables import text as text_column
from ui.web.kit.text import markdown_table
from ui.web.kit.widgets import button, nothing_here, run_mark, tool
from ui.web.pickers.facets import uncounted_words
from ui.web.progress import run_notes, workers_words
from ui.web.turns.labels import author_field

#: Where tables and columns are explained.
TABLES = "`trinity doctor --tables` in a terminal explains every table and column."
#: The runs that somebody may have to look after, in the order in which they are shown.
_OPEN = (RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.INTERRUPTED, RunStatus.FAILED)
_MOST_RUNS = 20
_TAIL_BYTES = 4000
_NEW, _NAME, _CEILING = "endpoint_new_key", "endpoint_key_name", "endpoint_key_ceiling"


def show() -> None:
    store = state.store()
    st.title("Settings & health")
    words = {name: said for name, (said, _) in PARTS.items()}
    part = state.address_select("Part", words, name="part", key="settings_part")
    PARTS[part][1](store)


def _health(store: Store) -> None:
    health = store.health()
    if health.warning:
        st.warning(label(health.warning, 400), icon=":material/warning:")
    if health.stalled:
        st.warning(
            f"{health.stalled} run{'s have' if health.stalled > 1 else ' has'} gone silent: see Runs and workers.",
            icon=":material/heart_broken:",
        )
    figures = {
        "Episodes": f"{health.episodes:,}",
        "Turns": f"{health.turns:,}",
        "Checkpoints": f"{health.checkpoints:,}",
        "Size": size_words(health.size_bytes),
        "Free on its disk": size_words(health.free_bytes),
    }
    with st.container(horizontal=True, gap="medium", key="figures"):
        for name, value in figures.items():
            st.metric(name, value, width="content")
    if aside := uncounted_words(store):
        st.caption(f"Episodes{aside}")
    st.markdown(f"**Where it is** · {label(health.database)}")
    st.code(health.url, language=None, wrap_lines=True)
    st.markdown("**How to back it up**, at any time, while it is used too")
    st.code(health.backup_hint, language=None, wrap_lines=True)
    st.markdown(f"**Schema {label(health.schema)}**, migrated by itself when an older store is opened")
    with st.expander("Sizes by table", icon=":material/database:", key="sizes", on_change="rerun") as sizes:
        if sizes.open:
            st.caption(f"Bytes with indexes; a large store takes a moment to be measured. {TABLES}")
            tables = table_sizes(store.engine)
            rows = [(one.name, f"{one.rows:,}", size_words(one.size_bytes)) for one in tables]
            markdown_table(("Table", "Rows", "Size"), rows, "lrr")


def _work(store: Store) -> None:
    found = [run for status in _OPEN for run in store.runs.list(status=status, limit=_MOST_RUNS)]
    now = time.time()
    marks = Counter(run_mark(run, stalled=queue.has_died(run, now)).word for run in found)
    counts = ", ".join(f"{n} {word}" for word, n in marks.items())
    st.markdown(f"**{counts or 'Nothing is running'}**")
    st.caption(
        f"{workers_words(sum(run.status is RunStatus.QUEUED for run in found))} "
        "To have more or fewer, start with TRINITY_WORKERS, or run `trinity worker` as often as you like."
    )
    if not found:
        nothing_here("No run is under way, waiting, interrupted or failed.", icon=":material/task_alt:")
    for run in found:
        with st.container(border=True):
            _run(run, now)
    with st.container(horizontal=True, gap="small"):
        state.page_link("live", "Play a problem", icon=":material/play_circle:")
        state.page_link("evolution", "Evolutions", icon=":material/trending_up:")


def _run(run: RunSummary, now: float) -> None:
    stalled = queue.has_died(run, now)
    parts = [badge(run_mark(run, stalled=stalled)), f"**{label(run_name(run))}**"]
    if run.episodes:
        parts.append(f"{run.finished_episodes:,} of {run.episodes:,} episodes")
    if run.generations:
        parts.append(f"{run.generations:,} generations")
    st.markdown(" · ".join(parts), help=f"Run {code(run.id)}")
    alive = "no sign of life yet" if run.heartbeat is None else f"last sign of life {ago(run.heartbeat, now)}"
    owner = label(process_words(run.owner), 60) if run.owner else "no process"
    st.caption(f"begun {ago(run.created, now)} · {owner} · {alive}")
    if run.error:
        st.text(plain(run.error, 600))
    _ways_on(run, stalled)
    log = queue.log_file(run.id)
    if log.exists() and log.stat().st_size:
        with st.expander("Last output of its process", key=f"log_{run.id}", on_change="rerun") as said:
            if said.open:
                st.code(plain(tail(log)), language=None, wrap_lines=True)
                st.caption(label(str(log), 300))


def _ways_on(run: RunSummary, stalled: bool) -> None:
    kind = kind_of(run)
    stands = stalled or run.status in (RunStatus.INTERRUPTED, RunStatus.QUEUED)
    words = "Resume it there" if stands and kind.resumes else "Look at it"
    state.page_link(kind.page, words, icon=":material/arrow_forward:", **address_of(run))
    if stands and not kind.resumes and (command := kind.resume_command(run.id)):
        st.code(command, language=None)


def tail(file: Path) -> str:
    """The last lines of a file, at most a screenful; a sentence when it cannot be read."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return opened.read().decode("utf-8", "replace").strip()
    except OSError as error:
        return f"It cannot be read: {error.strerror or error}."


def _keys(_: Store) -> None:
    st.caption("Keys do nothing while you type in a field. H shows the keys of the page you are on.")
    columns, filled = st.columns(2, gap="large"), [0, 0]
    for page, keys in key_sheets().items():
        shorter = filled.index(min(filled))
        filled[shorter] += len(keys) + 3  # its title and the head of its table
        with columns[shorter]:
            st.markdown(f"**{page}**")
            key_table(keys)


def _you(_: Store) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        author_field("settings_author")
        help = "Buttons in place of the drawn strip: for screen readers and old browsers"
        plain_strip_toggle("settings_plain_strip", help)
        st.caption("Both are kept for this tab.")
    with right:
        st.markdown("**Light or dark**")
        st.write(
            "The page follows your system. The menu ⋮ at the top right has Settings, where you can choose."
        )
        st.markdown("**Quick labels**")
        st.write(", ".join(label_words(pair) for pair in wiring.settings().labels))
        st.caption("For others, start with TRINITY_LABELS, or write into config.toml in the data folder:")
        listed = ", ".join("=".join(pair) for pair in wiring.settings().labels)
        st.code(f'labels = "{listed}"', language=None, wrap_lines=True)


def _about(_: Store) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"**Trinity Inspector {label(version())}**")
        rows = [(label(name), label(number)) for name, number in packages().items()]
        markdown_table(("Built on", "Version"), rows, "ll")
    with right:
        st.markdown("**Caches of this server**")
        if rows := [(label(name), size) for name, size in cached().items()]:
            markdown_table(("What is remembered, by the function that made it", "Entries"), rows, "lr")
        else:
            st.caption("Nothing is remembered now.")
        button("Clear caches", "clear_caches", _clear, icon="delete_sweep")
        st.caption("Recorded data stays; pages read it again, a little slower the first time.")


def cached() -> dict[str, str]:
    """What the server remembers, by the function that made it: entries, or bytes where values are copied."""
    held: dict[str, str] = {}
    for provider, words in (
        (get_resource_cache_stats_provider(), "{:,}".format),
        (get_data_cache_stats_provider(), size_words),
    ):
        for one in chain.from_iterable(provider.get_stats().values()):
            held[getattr(one, "cache_name", "")] = words(getattr(one, "byte_length", 0))
    return dict(sorted(held.items()))


def _clear() -> None:
    st.cache_resource.clear()
    st.cache_data.clear()
    st.toast("Cleared.", icon=":material/check:")


def key_sheets() -> dict[str, Keys]:
    """Page title -> its keys; pages without any are left out."""
    sheets: dict[str, Keys] = {}
    for name in state.VIEWS:
        page = import_module(f"ui.web.views.{name}")
        if keys := getattr(page, "KEYS", None):
            sheets[(page.__doc__ or name).partition(":")[0]] = keys
    return sheets


_AGES = {"30": "over 30 days old", "90": "over 90 days", "365": "over a year", "0": "any age"}
_DONE = "pruned"
#: The runs that are offered by name.
_MOST_RUNS_SHOWN = 100


def prune_panel(store: Store) -> None:
    """Choose, see what would go, and remove it; everything stands in the address."""
    st.caption(
        "Episodes that are labelled, forked or still running are kept, and counted below. You confirm first; it "
        "cannot be undone. The same in a terminal: `trinity prune --help`."
    )
    if done := st.session_state.pop(_DONE, None):
        st.success(done, icon=":material/check:")
    kinds = {str(what): words for what, words in WORDS.items()}
    what = cast(What, state.address_select("What to remove", kinds, name="what", key="prune_what"))
    left, right = st.columns(2)
    with left:
        age = state.address_select("Age", _AGES, name="age", key="prune_age")
    newest = store.runs.list(limit=_MOST_RUNS_SHOWN)
    runs = {"": "every run"} | {
        run: one_line(f"{name} · {run}", 90) for run, name in names_of(newest).items()
    }
    with right:
        run = state.address_select("Run", runs, name="of", key="prune_run", widget="list")
    where = EpisodeFilter(run=run or None, q=began_before(f"{age}d", time.time()) if age != "0" else None)
    referenced = st.toggle(
        "Include episodes that labels or forks refer to",
        key="prune_referenced",
        help="Labels of removed runs go too, and forks can no longer be compared with what they were forked from.",
    )
    found = preview(store, what, where, everything=referenced)
    with st.container(border=True):
        st.markdown("  \n".join(label(line, 400) for line in retention_words(found)))
        if found.rows:
            sure = st.checkbox("I am sure", key=f"prune_sure_{found.what}_{found.rows}")
            words = f"Remove {WORDS[found.what]}, {size_words(found.size_bytes)}"
            act = partial(_remove, store, found.what, where, referenced)
            button(words, "prune_now", act, icon="delete", disabled=not sure)
    if store.engine.dialect.name == "sqlite":
        help = "SQLite's VACUUM: gives freed room back to the disk, and needs as much again while it works"
        tool("Make the file smaller", "vacuum", partial(_compact, store), icon="compress", help=help)


def _remove(store: Store, what: What, where: EpisodeFilter, referenced: bool) -> None:
    gone = prune(store, what, where, everything=referenced)
    st.cache_resource.clear()  # what was read before would be shown on
    st.cache_data.clear()
    noun = what if what in ("runs", "episodes") else "rows"
    st.session_state[_DONE] = (
        f"Removed: {gone.rows:,} {noun}, about {size_words(gone.size_bytes)}. The file "
        "keeps its size, to be used again, until you make it smaller."
    )


def _compact(store: Store) -> None:
    compact(store)
    st.session_state[_DONE] = f"The store is now {size_words(store.health().size_bytes)} large."


# The endpoint: how to ask it, its tiers, and its keys


def endpoint_panel(store: Store) -> None:
    """How to ask, what can be asked for, and who may."""
    chosen = wiring.settings()
    try:
        endpoint = read_endpoint(None, chosen.data_folder)
    except TrinityError as error:
        state.failed(str(error))
        return
    st.markdown(
        "**How to ask it**, from this machine, with any client of OpenAI's API, or of Anthropic's (`/v1/messages`)"
    )
    st.code(_example(chosen.port, endpoint.tier[0].name), language="sh", wrap_lines=True)
    if chosen.pool == "pocket":
        st.caption(f"The right answer is {EXAMPLE_ANSWER}.")
    st.caption(
        "Each request is an episode: it appears under Episodes while it runs. `trinity serve --help` tells how to "
        "serve the same on an address of its own."
    )
    served = ANALYSES["requests"]
    state.page_link("requests", "What was asked, how fast and at what cost", icon=f":material/{served.icon}:")
    st.markdown("**What can be asked for**")
    try:
        _tiers(store, endpoint)
    except TrinityError as error:
        st.caption(label(str(error), 400))
    for run in store.runs.list("serve", limit=1):
        run_notes(run)
    if worth := _worth_of_turns():
        st.caption(worth)
    st.caption(
        f"Tiers are written into {label(str(chosen.data_folder / FILE), 300)}; `trinity serve --write-config FILE` "
        "writes one with comments."
    )
    _api_keys(store)


def _example(port: int, model: str) -> str:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "{EXAMPLE}"}}]}}'
    return f"curl http://127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\\n  -d '{body}'"


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


def _tiers(store: Store, endpoint: Endpoint) -> None:
    """What can be asked for, and what is known of who decides."""
    offer, faults = Offer(endpoint, slots_of(wiring.pool_specs(wiring.settings().pool)), store), 0
    rows = []
    for tier in endpoint.tier:
        try:
            policy, among = offer.policy_of(tier), offer.among_words(tier)
        except TrinityError as error:
            policy, among, faults = one_line(str(error), 200), "", faults + 1
        ceiling = "none" if tier.max_cost_usd is None else dollars(tier.max_cost_usd)
        rows.append((tier.name, policy, offer.turns_of(tier), among, f"{tier.deadline_s:g} s", ceiling))
    columns: dict[str, Any] = {
        "name": "Model",
        "policy": text_column("Who decides"),
        "turns": number("Turns"),
        "models": "Chooses among",
        "deadline": "Deadline",
        "ceiling": "Ceiling of a request",
    }
    row_table(columns, rows, key="endpoint_tiers")
    for words, advice in () if faults else offer.reports():
        if advice:
            st.warning(label(f"{words} {advice}", 600))
        else:
            st.caption(label(words, 400))


def _api_keys(store: Store) -> None:
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
                "name": text_column("Key", pinned=True),
                "state": "",
                "requests": number("Requests", "localized"),
                "cost": "Cost",
                "ceiling": "Ceiling",
                "turns": number("Most turns"),
                "deadline": "Deadline",
                "quotas": "By day and month",
                "without": "Does without",
                "used": "Last used",
            },
            [_key_row(one, now) for one in keys],
            key="endpoint_keys",
        )
    else:
        nothing_here("There is no key yet.", icon=":material/key_off:")
    if not store.read_only:
        _change_keys(store, keys)


def _change_keys(store: Store, keys: Sequence[ApiKey]) -> None:
    """Make a key, or revoke one."""
    with st.form("endpoint_key", border=False):
        columns = st.columns([4, 3, 2], vertical_alignment="bottom")
        columns[0].text_input("What the new key is for", key=_NAME, max_chars=80)
        columns[1].number_input(
            "Ceiling in US dollars (empty: none)", min_value=0.0, value=None, key=_CEILING
        )
        with columns[2]:
            st.form_submit_button("Make a key", on_click=partial(_make, store), icon=":material/key:")
    valid = {
        one.id: one_line(f"{one_line(one.name, 40)} ({one.id})", 60) for one in keys if one.revoked is None
    }
    if not valid:
        return
    left, right = st.columns([4, 5], vertical_alignment="bottom")
    which = left.selectbox(
        "Revoke", list(valid), format_func=valid.__getitem__, index=None, key="endpoint_revoke"
    )

    def revoke() -> None:
        if which:
            store.endpoint.revoke(which)
            st.session_state["endpoint_revoke"] = None

    with right:
        button("Revoke it", "endpoint_revoke_now", revoke, icon="block", disabled=not which)


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
        quota_words(limits),
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


#: What stands in the address -> its name, and what shows it.
PARTS: dict[str, tuple[str, Callable[[Store], None]]] = {
    "health": ("Store", _health),
    "room": ("Make room", prune_panel),
    "work": ("Runs and workers", _work),
    "endpoint": ("Endpoint", endpoint_panel),
    "keys": ("Keys", _keys),
    "you": ("You", _you),
    "about": ("Versions and caches", _about),
}

if __name__ == "__main__":
    state.run(show)
