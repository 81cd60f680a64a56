"""A self-contained HTML page of an episode, a pair, a list or an analysis: no script, no request, every foreign text
escaped once.

Escaping happens in one place: whatever a template prints goes through `ui.presentation.theme.plain`, which makes hidden
characters visible, and then through Jinja's escape. Styles are inline and a policy in the page forbids the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from core.analysis.comparison import RULE, RULE_IN_SHORT, align
from core.analysis.head_lens import Pair, overruled_pair
from core.episode import ROLE_ORDER, Decision, Episode, Flag, Status
from core.heads import softmax
from core.play.policies import rule_of
from storage.analysis.second_opinions import EpisodeScope, Opinion, read_opinions
from storage.reads.episode_steps import read_decision
from storage.rows.mapping import to_floats
from storage.rows.summaries import EpisodeSummary, TurnOutline, TurnText, with_judgements
from storage.shelves.labels import Label
from storage.store import Store
from ui.answers.blocks import Answer
from ui.export.rows import rows_of
from ui.presentation.comparison import ALIGNMENT_WORDS, mirror, moves, totals
from ui.presentation.course import cells, counted_turns
from ui.presentation.odds import alternatives, choice_words, options
from ui.presentation.rules import drawn_words, ended_words, told_of
from ui.presentation.theme import (
    correct_mark,
    flag_words,
    model_colour,
    one_line,
    outcome_mark,
    percent,
    plain,
)
from ui.presentation.words import (
    HARD_CUT,
    Generations,
    deciders,
    dollars,
    generations_of,
    judged_words,
    label_words,
    policy_name,
    recorded_words,
    role_word,
    seconds,
    strip_text,
    used_words,
)

TEMPLATES = Path(__file__).parent / "templates"

#: Prompts repeat the replies before them: each message is cut to this many characters.
PROMPT_CUT = 20_000


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn that was begun: its outline, decision, texts, labels and second opinions, and what a person overruled."""

    outline: TurnOutline
    decision: Decision | None
    text: TurnText
    labels: tuple[Label, ...] = ()
    opinions: tuple[Opinion, ...] = ()
    proposed: Pair | None = None  # what a person overruled, where it is known


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode's summary, the episode itself and every turn begun, the unfinished last one included."""

    summary: EpisodeSummary
    episode: Episode
    turns: tuple[PlayedTurn, ...]
    labels: tuple[Label, ...] = ()  # about the episode as a whole
    names: Generations = field(default_factory=dict)  # by which its policies are called
    told: tuple[str, ...] = ()  # how its policy was chosen, where that was told

    @property
    def outlines(self) -> tuple[TurnOutline, ...]:
        """The turns without their texts."""
        return tuple(turn.outline for turn in self.turns)

    @property
    def replies(self) -> dict[int, str]:
        """What was said, by turn."""
        return {turn.outline.index: turn.text.reply for turn in self.turns}


def read_played(store: Store, episode_id: str) -> PlayedEpisode:
    """The episode with everything it needs on a page; StoreError when there is none with this id."""
    episode = store.episodes.get(episode_id)
    finished = {turn.index: turn for turn in episode.turns}
    removed = episode.removed.get("texts"), episode.removed.get("texts", episode.removed.get("prompts"))
    labels, opinions = (
        store.labels.of(episode_id),
        read_opinions(store, EpisodeScope(episode=episode_id), None),
    )
    turns = []
    for outline in with_judgements(store.episodes.outline(episode_id), episode.judgements):
        if turn := finished.get(outline.index):
            decision: Decision | None = turn.decision
            text = TurnText(turn.messages, turn.reply.text, turn.reply.reasoning, False, *removed)
        else:
            decision = read_decision(store, episode_id, outline.index)
            text = store.episodes.text(episode_id, outline.index)
        turn_labels = tuple(one for one in labels if one.place.index == outline.index)
        others = tuple(one for one in opinions if one.idx == outline.index)
        proposed = overruled_pair(decision, episode.models, episode, outline.index) if decision else None
        turns.append(PlayedTurn(outline, decision, text, turn_labels, others, proposed))
    own_labels = tuple(one for one in labels if one.place.index is None)
    summary = store.episodes.summary(episode_id)
    told = tuple(told_of(store.runs.get(episode.run_id).notes, episode.policy))
    return PlayedEpisode(summary, episode, tuple(turns), own_labels, generations_of(store), told)


def episode_page(played: PlayedEpisode) -> str:
    """The page of one episode; its turns have the anchors `#t1`, `#t2` and so on."""
    return _rendered("episode", one=played, strip=_strip(played))


def pair_page(a: PlayedEpisode, b: PlayedEpisode) -> str:
    """The page of two episodes side by side, aligned; its rows have the anchors `#r1`, `#r2` and so on."""
    first, second = sorted((a, b), key=lambda one: one.episode.id)
    found = align(*(moves(one.outlines, one.replies) for one in (first, second)))
    return _rendered(
        "pair",
        a=a,
        b=b,
        strips=(_strip(a), _strip(b)),
        alignment=found if first is a else mirror(found),  # its rows are the same whichever side is A
        rule=f"{RULE_IN_SHORT} {RULE}",
        row_words=ALIGNMENT_WORDS,
    )


def page_of(store: Store, ids: Sequence[str]) -> str:
    """The page of one episode, or of two side by side; StoreError for one that there is not."""
    played = [read_played(store, one) for one in ids]
    return episode_page(*played) if len(played) == 1 else pair_page(*played)


def index_page(summaries: Sequence[EpisodeSummary], title: str) -> str:
    """The page that leads to the pages of several episodes lying beside it as `ID.html`."""
    return _rendered("index", title=title, episodes=summaries)


def analysis_page(
    title: str,
    counts: Mapping[str, int],
    found: Mapping[str, Sequence[Answer]],
    things: str = "finished episodes",
) -> str:
    """The page of an analysis. `counts`: how many `things` each selection has; `found`: answers by part."""
    return _rendered("analysis", title=title, counts=counts, parts=found, things=things)


def _rendered(template: str, **values: object) -> str:
    return _environment().get_template(f"{template}.html").render(values)


def _strip(played: PlayedEpisode) -> object:
    return cells(played.outlines, played.episode.models, running=played.episode.status is Status.RUNNING)


def second_opinions(turn: PlayedTurn, models: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """What other checkpoints that read a turn again would most likely have chosen: checkpoint, pair, its probability,
    and a note that says whether choice and text are the recorded ones."""
    if turn.decision is None:
        return []
    return [_opinion_row(one, turn.decision, models) for one in turn.opinions]


def _opinion_row(opinion: Opinion, decision: Decision, models: Sequence[str]) -> tuple[str, str, str, str]:
    p = softmax(np.array(to_floats(opinion.model_logits)), decision.model_mask)
    q = softmax(np.array(to_floats(opinion.role_logits)), decision.role_mask)
    model, role = models[int(p.argmax())], ROLE_ORDER[int(q.argmax())]
    note = "the same" if (model, role) == (decision.model, decision.role) else "otherwise"
    if opinion.prompt_digest != decision.prompt_digest:
        note += "; it read another text"
    return opinion.checkpoint_id, f"{role_word(role)} on {model}", percent(float(p.max() * q.max())), note


def time_words(at: float) -> str:
    """A time as `2026-11-05 14:30 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def end_words(played: PlayedEpisode) -> str:
    """Why an episode ended, in words; empty for one that has not."""
    return ended_words(played.summary)


def _used(summary: EpisodeSummary) -> list[tuple[str, str]]:
    """Tokens, time and cost; of recorded replies it is said what nobody counted."""
    tokens, recorded = summary.tokens_in + summary.tokens_out, Flag.RECORDED.value in summary.flags
    return [
        ("Tokens", f"{tokens:,}" if tokens or not recorded else "not recorded"),
        ("Time", seconds(summary.latency_s) if summary.latency_s or not recorded else "not recorded"),
        ("Cost", "not recorded" if recorded and summary.cost_usd is None else dollars(summary.cost_usd)),
    ]


def facts(played: PlayedEpisode) -> list[tuple[str, str]]:
    """The other facts of an episode's head: name and value."""
    summary, episode = played.summary, played.episode
    n, generation = len(played.turns), played.names.get(summary.policy, summary.generation)
    rows = [
        ("Policy", deciders(summary.policy, generation, episode.deciders, lambda: played.names)),
        ("Choice", drawn_words(episode, [turn.outline for turn in played.turns])),
        ("Protocol", episode.protocol or "not recorded"),
        (
            "Turns",
            str(n)
            if rule_of(summary.policy)
            else counted_turns(n, episode.turn_budget).replace(" turns", "", 1),
        ),
        *_used(summary),
        ("Task", f"{episode.task.id} ({episode.task.family})"),
        ("Episode", episode.id),
        ("Run", episode.run_id),
    ]
    rows += [("Chosen", sentence) for sentence in played.told]
    if fork := episode.fork:
        rows.append(("Fork of", f"{fork.parent}, from turn {fork.turn + 1} on"))
    return rows


#: What templates may call.
_TOLD: tuple[Callable[..., object], ...] = (
    *(
        alternatives,
        choice_words,
        correct_mark,
        dollars,
        end_words,
        facts,
        flag_words,
        label_words,
        model_colour,
        one_line,
    ),
    *(
        options,
        outcome_mark,
        percent,
        policy_name,
        judged_words,
        recorded_words,
        role_word,
        rows_of,
        second_opinions,
        seconds,
    ),
    *(strip_text, time_words, totals, used_words),
)


def printed(value: object) -> object:
    """What a template prints: text with everything hidden in it shown, our own markup as it is."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else plain(str(value))


@cache
def _environment() -> Environment:
    """What renders the templates: it escapes all that they print."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=printed,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {one.__name__: one for one in _TOLD}
    made.globals |= {
        "roles": [role_word(role) for role in ROLE_ORDER],
        "reply_cut": HARD_CUT,
        "prompt_cut": PROMPT_CUT,
    }
    return made
