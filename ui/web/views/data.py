"""Data: what a filter lets through as a file, files of others into this store, and how figures are saved."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, cast

import streamlit as st

from core.errors import TrinityError
from storage.files.interchange import MAX_BYTES, MAX_LINE_BYTES, ImportReport, import_stream
from storage.files.jsonl import VERSION
from storage.files.selection import count_episodes
from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter
from storage.store import Store
from ui.export.formats import FORMATS, command
from ui.presentation.theme import label, plain
from ui.web.kit import state
from ui.web.kit.cache import run_names
from ui.web.kit.figures import FIGURES_AS, IMAGE_FORMATS, image_format
from ui.web.kit.widgets import button, download, tool
from ui.web.pickers.facets import fork_switch, sample_switch

_REPORT = "import_report"

#: The lines of a trinity-jsonl file, in their order: kind and what it holds.
LINES = (
    ("header", "the format's name and version, and the ids of the runs that follow"),
    ("run", "a run: what was played, when, and how it ended"),
    ("checkpoint", "a coordinator: its settings and weights"),
    ("generation, optimiser", "an evolution's course, when the whole run was exported"),
    ("episode", "a task, every turn with its decision, texts and verdict, and the outcome"),
    ("label", "what somebody said of the episode before it; what was replaced or withdrawn is kept too"),
    (
        "end",
        "how many lines there are of each kind, and a checksum: a file that was cut or changed is refused",
    ),
)


def show() -> None:
    """The page: export, import, what the format is, how figures are saved."""
    store = state.store()
    st.title("Data")
    st.caption("Take episodes out as files, bring those of others in. Nothing leaves this machine by itself.")
    where = EpisodeFilter.from_query(st.query_params.to_dict())
    where = WHOLE_STORE if where == EpisodeFilter() else where
    left, right = st.columns([3, 2], gap="large")
    with left:
        _export(store, where)
    with right:
        _import(store)
        _figures()


def _export(store: Store, where: EpisodeFilter) -> None:
    st.subheader("Export", anchor=False)
    _which(store, where)
    offered = {name: one.words for name, one in FORMATS.items()}
    form = state.address_select("Format", offered, name="as", key="format")
    chosen = FORMATS[form]
    st.markdown(chosen.holds)
    if not count_episodes(store, where, 1).n:
        button("Download", "nothing_to_download", icon="download", disabled=True)
        return
    if refused := chosen.too_much(store, where):
        st.info(f"Too much for a browser: {refused}. Run this instead:", icon=":material/terminal:")
        st.code(plain(command(where, form)), language=None, wrap_lines=True)
    else:
        words, file_name = f"Download {chosen.words}", f"trinity-episodes{chosen.suffix}"
        data = chosen.deferred(store, where)
        download(words, data, file_name, chosen.mime, key=f"download_{form}", type="primary")
    texts = " and 100 million characters" if chosen.texts else ""
    st.caption(
        f"In the browser: up to {chosen.most:,} episodes{texts}. Beyond that the command line has no limit but the "
        "disk's."
    )


def _which(store: Store, where: EpisodeFilter) -> None:
    found = count_episodes(store, where, 100_000)
    conditions = {} if where == WHOLE_STORE else where.to_query()
    words = " · ".join(f"{name.replace('_', ' ')}: {value}" for name, value in conditions.items())
    noun = "episode" if found.n == 1 else "episodes"
    count_words = f"**{found} {noun}**" if found.n else "**No episode matches**"
    st.markdown(
        f"{count_words} · {label(words, 300) if words else 'the whole store, forks and samples included'}"
    )
    with st.container(horizontal=True):
        state.page_link("episodes", "Choose others", icon=":material/filter_alt:", **where.to_query())
        if words:
            facets = store.episodes.facets(where)
            fork_switch(where, facets, state.set_params)
            sample_switch(where, facets, state.set_params)
            state.page_link("data", "The whole store", icon=":material/all_inclusive:")


def _import(store: Store) -> None:
    st.subheader("Import", anchor=False)
    megabytes = int(st.get_option("server.maxUploadSize"))
    uploaded = st.file_uploader(
        f"A file that was exported as JSON Lines, up to {megabytes} MB; larger ones with `trinity import FILE`",
        type=["jsonl", "gz"],
        key="upload",
        help="Every line is checked before anything is kept: all of the file comes in, or nothing.",
    )
    if uploaded is not None and tool("Import it", "import_it", icon="upload", type="primary"):
        st.session_state.pop(_REPORT, None)
        try:
            with st.spinner("Checking every line …"):
                # Only the name's last part: it stands in sentences and is never opened.
                named = Path(Path(uploaded.name).name or "upload")
                st.session_state[_REPORT] = import_stream(store, cast(BinaryIO, uploaded), named)
        except TrinityError as error:
            st.error(label(str(error), 600), icon=":material/error:")
    if (report := st.session_state.get(_REPORT)) is not None:
        _report(store, report)
    with st.expander("What the format is", key="format_explained"):
        st.markdown(
            "A `trinity-jsonl` file is UTF-8 text, a JSON object per line, plain (`.jsonl`) or gzipped "
            f"(`.jsonl.gz`), version {VERSION}. Its lines, in this order:"
        )
        st.markdown("\n".join(f"- **{kind}**: {what}" for kind, what in LINES))
        st.caption(
            f"Refused: a line beyond {MAX_LINE_BYTES // 2**20} MB, a file beyond {MAX_BYTES // 2**30} GB unpacked or "
            "one that unpacks to far more than an export would, unknown or doubled keys, numbers beyond 64 bits, "
            "values that no recorded episode can have, such as a time after the year 9999 or probabilities that do "
            "not sum to 1, and an id that this store holds with other content. Importing a file twice changes nothing."
        )


def _report(store: Store, report: ImportReport) -> None:
    st.success(f"{label(report.file.name, 80)} is in the store.", icon=":material/task_alt:")
    counts = {kind if n == 1 else f"{kind}s": n for kind, n in report.added.items() if n}
    if report.unchanged:
        counts["already there"] = report.unchanged
    for column, (words, n) in zip(st.columns(max(1, len(counts))), counts.items(), strict=False):
        column.metric(words, f"{n:,}")
    for run_id, name in run_names(store, report.runs[:5]).items():
        words = f"Episodes of {label(name)}"
        state.page_link("episodes", words, icon=":material/table_rows:", run=run_id)


def _figures() -> None:
    st.subheader("Figures", anchor=False)
    st.markdown(
        ":material/photo_camera: The camera at the top right of every figure, shown while the pointer is on it, "
        "saves that figure as"
    )

    state.select(
        "Format of saved figures",
        IMAGE_FORMATS,
        image_format(),
        lambda form: st.session_state.update({FIGURES_AS: form}),
        key="image_format",
        widget="segments",
        required=True,
        label_visibility="collapsed",
    )
    st.caption(
        "For this browser tab. The picture has the colours of the page: choose the light theme before saving "
        "one for paper. It is drawn in your browser; nothing is sent."
    )


if __name__ == "__main__":
    state.run(show)
