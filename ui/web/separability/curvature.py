"""The part of the page Separability about whether the head's rows could be searched one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from core.analysis.curvature import FEWEST_EPISODES, SHUFFLES, BlockSeparability, block_separability
from core.episode import ROLE_ORDER
from storage.analysis.hidden_states import PolicyWithStates, read_choices
from storage.store import Store
from ui.presentation.theme import percent
from ui.presentation.words import role_word
from ui.web.kit.cache import remembered
from ui.web.kit.figures import plot
from ui.web.kit.widgets import ink, nothing_here
from ui.web.separability.figures import curvature_matrix, gain_curve


def curvature_part(store: Store, chosen: PolicyWithStates, slots: Sequence[str]) -> None:
    """How far the reward's curvature is from block-diagonal, and what the paper concludes from it."""
    with st.expander(
        "Can each logit be searched alone? The reward's curvature", icon=":material/grid_on:",
        on_change="rerun", key="curvature",
    ) as expander:  # fmt: skip
        if not expander.open:
            return
        st.caption(
            "The paper's theory: sep-CMA-ES, which knows no dependence between two numbers, does well when the "
            "Hessian of the expected reward is nearly block-diagonal (definition 1). The blocks here are the head's "
            "rows, one per logit; the Hessian is estimated from which choices were drawn and which episodes were "
            "solved, in the directions in which hidden states vary most."
        )
        found = _curved(store, chosen)
        if found is None:
            nothing_here(
                f"It takes at least {FEWEST_EPISODES} whole episodes with drawn choices and hidden states, some "
                "solved and some not. Play more tasks with this checkpoint."
            )
        else:
            _curvature(found, slots)
        st.caption(
            "What the paper concludes (proposition 1): the lead of CMA-ES over random search grows with the "
            "generations T at least like T / ln(16 T), up to constants that it does not give."
        )
        plot(
            gain_curve(),
            key="gain_curve",
            small=True,
            alt="The bound on the lead over random search grows from T = 2 to T = 60",
        )


def _curvature(found: BlockSeparability, slots: Sequence[str]) -> None:
    if found.found:
        st.markdown(
            f"Over {found.episodes:,} episodes, **{percent(found.outside or 0.0)}** of the squared curvature lies "
            "outside of the blocks, noise left out."
        )
    else:
        st.info(
            f"{found.episodes:,} episodes are too few to tell this curvature from chance: with shuffled rewards the "
            "figures come out alike. A run of a thousand episodes or more by a checkpoint that is not yet sure of "
            "its choices, such as an early generation, tells more.",
            icon=":material/info:",
        )
    rows = [*slots, *(role_word(role) for role in ROLE_ORDER)]
    left, right = st.columns([3, 2], gap="large")
    with left:
        plot(
            curvature_matrix(found.curvature, rows, ink()),
            key="curvature_matrix",
            alt="The norm of each block of the Hessian: diagonal blocks belong to one logit",
        )
    with right:
        pairs = (("Spectral norm", "spectral"), ("Largest block", "largest"), ("Sum over a row", "row"))
        st.table(
            pd.DataFrame(
                {
                    "Outside / inside": [f"{getattr(found.coupling, name):.2f}" for _, name in pairs],
                    "Shuffled rewards": [f"{getattr(found.by_chance, name):.2f}" for _, name in pairs],
                },
                index=[words for words, _ in pairs],
            ),
            border="horizontal",
        )
        st.caption(
            f"0 would be block-diagonal. Shuffled: the mean over {SHUFFLES} shuffles of which episodes were solved."
        )


@remembered(most=8)
def _curved(store: Store, chosen: PolicyWithStates) -> BlockSeparability | None:
    choices = read_choices(store, chosen.run_id, chosen.policy)
    return None if choices is None else block_separability(choices)
