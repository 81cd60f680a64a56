"""Settings & health: keys, one's own choices, the store, who works on what, tables, versions and caches.

Which part is read stands in the address as `part`. Everything here is read only, but for what concerns this tab alone,
clearing caches, and making room.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import streamlit as st
from streamlit.runtime.caching import get_data_cache_stats_provider, get_resource_cache_stats_provider

from storage import dictionary
from storage.inventory import TableSize, migrations, table_sizes
from storage.store import Store
from storage.summaries import Health, RunStatus, RunSummary
from ui import live, state, wiring
from ui.keys import key_sheets
from ui.labelling import author_field, words
from ui.prune_panel import prune_panel
from ui.reencoding import ReencodePlan
from ui.retaining import size_words
from ui.theme import badge, label, plain
from ui.versions import packages, version
from ui.widgets import RUN_MARKS, STALLED, ago, nothing_here, run_words

PARTS = {
    "health": "Store",
    "room": "Make room",
    "work": "Runs and workers",
    "keys": "Keys",
    "you": "You",
    "tables": "What the tables mean",
    "about": "Versions and caches",
}
#: The runs that somebody may have to look after, in the order in which they are shown.
_OPEN = (RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.INTERRUPTED, RunStatus.FAILED)
_MOST_RUNS = 20
_TAIL_BYTES = 4000


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Settings & health")
    part = state.choice("Part", PARTS, name="part", key="settings_part")
    if part == "work":
        _work(store)
    elif part == "room":
        prune_panel(store)
    elif part == "keys":
        _keys()
    elif part == "you":
        _you()
    elif part == "tables":
        _tables(store)
    elif part == "about":
        _about()
    else:
        _health(store, store.health())


# The store


def _health(store: Store, health: Health) -> None:
    if health.warning:
        st.warning(label(health.warning, 400), icon=":material/warning:")
    if health.stalled:
        st.warning(
            f"{health.stalled} run{'s have' if health.stalled > 1 else ' has'} gone silent: see Runs and workers.",
            icon=":material/heart_broken:",
        )
    for column, (name, value) in zip(
        st.columns(5),
        (
            ("Episodes", f"{health.episodes:,}"),
            ("Turns", f"{health.turns:,}"),
            ("Checkpoints", f"{health.checkpoints:,}"),
            ("Size", size_words(health.size_bytes)),
            ("Free on its disk", size_words(health.free_bytes)),
        ),
        strict=True,
    ):
        column.metric(name, value, border=True)
    st.markdown(f"**Where it is** · {label(health.database)}")
    st.code(health.url, language=None, wrap_lines=True)
    st.markdown("**How to back it up**, at any time, while it is used too")
    st.code(health.backup_hint, language=None, wrap_lines=True)
    st.markdown(f"**Schema {label(health.schema)}**, migrated by itself when an older store is opened")
    st.markdown(
        "  \n".join(
            f"{':green[:material/check:]' if step.applied else ':gray[:material/pending:]'} "
            f"`{step.revision}` {label(step.words, 200)}"
            for step in migrations(store.engine)
        )
    )
    with st.expander("Sizes by table", icon=":material/database:", key="sizes", on_change="rerun") as sizes:
        if sizes.open:
            _sizes(table_sizes(store.engine))


def _sizes(tables: Sequence[TableSize]) -> None:
    st.caption("Bytes with indexes; a large store takes a moment to be measured.")
    rows = [f"| {one.name} | {one.rows:,} | {size_words(one.size_bytes)} |" for one in tables]
    st.markdown("\n".join(["| Table | Rows | Size |", "|:--|--:|--:|", *rows]))


# Runs and workers


def _work(store: Store) -> None:
    found = [run for status in _OPEN for run in store.runs.list(status=status, limit=_MOST_RUNS)]
    counts = ", ".join(
        f"{n} {RUN_MARKS[status].word}"
        for status in _OPEN
        if (n := sum(run.status is status for run in found))
    )
    st.markdown(f"**{counts or 'Nothing is running'}**")
    st.caption(
        f"{live.workers_words(sum(run.status is RunStatus.QUEUED for run in found))} "
        "To have more or fewer, start with TRINITY_WORKERS, or run `trinity worker` as often as you like."
    )
    if not found:
        nothing_here("No run is under way, waiting, interrupted or failed.", icon=":material/task_alt:")
    now = time.time()
    for run in found:
        with st.container(border=True):
            _run(run, now)
    with st.container(horizontal=True, gap="small"):
        state.page_link("live", "Play a problem", icon=":material/play_circle:")
        state.page_link("evolution", "Evolutions", icon=":material/trending_up:")


def _run(run: RunSummary, now: float) -> None:
    mark = STALLED if live.is_stalled(run, now) else RUN_MARKS[run.status]
    parts = [badge(mark), f"**{label(run.id)}**", run.kind]
    if about := run_words(run):
        parts.append(label(about, 60))
    if run.episodes:
        parts.append(f"{run.finished_episodes:,} of {run.episodes:,} episodes")
    if run.generations:
        parts.append(f"{run.generations:,} generations")
    st.markdown(" · ".join(parts))
    alive = "no sign of life yet" if run.heartbeat is None else f"last sign of life {ago(run.heartbeat, now)}"
    owner = f"process {label(run.owner, 60)}" if run.owner else "no process"
    st.caption(f"begun {ago(run.created, now)} · {owner} · {alive}")
    if run.error:
        st.text(plain(run.error, 600))
    _ways_on(run)
    log = live.log_file(run.id)
    if log.exists() and log.stat().st_size:
        with st.expander("What its process said last", key=f"log_{run.id}", on_change="rerun") as said:
            if said.open:
                st.code(plain(tail(log)), language=None, wrap_lines=True)
                st.caption(label(str(log), 300))


def _ways_on(run: RunSummary) -> None:
    """To the page that shows the run; what resumes it when it stands still."""
    if run.kind == "reencode":
        query = ReencodePlan.from_config(run.config).address()
        state.page_link("policy", "Look at it there", icon=":material/arrow_forward:", **query)
        return
    page = {"live": "live", "evolve": "evolution"}.get(run.kind, "episodes")
    stands = run.status in (RunStatus.INTERRUPTED, RunStatus.QUEUED)
    words = "Resume it there" if stands and page != "episodes" else "Look at it"
    state.page_link(page, words, icon=":material/arrow_forward:", run=run.id)
    if run.kind == "run" and run.status is RunStatus.INTERRUPTED:
        st.code(f"trinity run --resume {run.id}", language=None)


def tail(file: Path) -> str:
    """The last lines of a file, at most a screenful; a sentence when it cannot be read."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return opened.read().decode("utf-8", "replace").strip()
    except OSError as error:
        return f"It cannot be read: {error.strerror or error}."


# Keys, and what concerns this tab


def _keys() -> None:
    st.caption("Keys rest while you type in a field. H shows the keys of the page you are on.")
    columns, filled = st.columns(2, gap="large"), [0, 0]
    for page, keys in key_sheets().items():
        shorter = filled.index(min(filled))
        filled[shorter] += len(keys) + 3  # its title and the head of its table
        with columns[shorter]:
            st.markdown(f"**{page}**")
            st.markdown(
                "\n".join(["| Key | |", "|:--|:--|", *(f"| **{key}** | {what} |" for key, what in keys)])
            )


def _you() -> None:
    left, right = st.columns(2, gap="large")
    with left:
        author_field("settings_author")
        st.toggle(
            "Plain turn strip, without the component",
            key="settings_plain_strip",
            value=bool(st.session_state.get("plain_strip", False)),
            help="Buttons in place of the drawn strip: for screen readers and old browsers",
            on_change=_plain_strip,
        )
        st.caption("Both are kept for this tab.")
    with right:
        st.markdown("**Light or dark**")
        st.write(
            "The page follows your system. The menu ⋮ at the top right has Settings, where you can choose."
        )
        st.markdown("**Labels at hand**")
        st.write(", ".join(words(pair) for pair in wiring.settings().labels))
        st.caption("To have others, start with TRINITY_LABELS, or write into config.toml in the data folder:")
        listed = ", ".join("=".join(pair) for pair in wiring.settings().labels)
        st.code(f'labels = "{listed}"', language=None, wrap_lines=True)


def _plain_strip() -> None:
    st.session_state["plain_strip"] = st.session_state["settings_plain_strip"]


# What the tables mean


def _tables(store: Store) -> None:
    st.caption("The store is an ordinary database, to be read with any tool. One row is …")
    table = state.param("table")
    for name, meaning in dictionary.TABLES.items():
        with st.expander(f"**{name}** · {meaning}", expanded=name == table, key=f"table_{name}"):
            rows = [
                f"| `{one.name}` | {one.type.lower()}{'' if one.required else ', may be empty'} | "
                f"{one.key} | {label(one.meaning, 200)} |"
                for one in dictionary.columns(name)
            ]
            st.markdown("\n".join(["| Column | Type | Key | Meaning |", "|:--|:--|:--|:--|", *rows]))


# Versions and caches


def _about() -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"**Trinity Inspector {label(version())}**")
        rows = [f"| {label(name)} | {label(number)} |" for name, number in packages().items()]
        st.markdown("\n".join(["| Stands on | Version |", "|:--|:--|", *rows]))
    with right:
        st.markdown("**Caches of this server**")
        held = cached()
        if held:
            rows = [f"| {label(name)} | {size} |" for name, size in held.items()]
            st.markdown(
                "\n".join(
                    ["| What is remembered, by the function that made it | Entries |", "|:--|--:|", *rows]
                )
            )
        else:
            st.caption("Nothing is remembered now.")
        st.button("Clear caches", key="clear_caches", icon=":material/delete_sweep:", on_click=_clear)
        st.caption("What is recorded stays; pages read it anew, a little slower the first time.")


def cached() -> dict[str, str]:
    """What the server remembers, by the function that made it: entries, or bytes where values are copied."""
    held: dict[str, str] = {}
    for provider, unit in (
        (get_resource_cache_stats_provider(), "entries"),
        (get_data_cache_stats_provider(), "bytes"),
    ):
        for one in (stat for family in provider.get_stats().values() for stat in family):
            size = getattr(one, "byte_length", 0)
            held[getattr(one, "cache_name", "")] = f"{size:,}" if unit == "entries" else size_words(size)
    return dict(sorted(held.items()))


def _clear() -> None:
    st.cache_resource.clear()
    st.cache_data.clear()
    st.toast("Cleared.", icon=":material/check:")


if __name__ == "__main__":
    state.run(show)
