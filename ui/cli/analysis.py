"""Analyses as commands, their answers as tables, as JSON or as a page: those that take episodes, and `trinity compare`,
`policy`, `requests`, `evolution` and `separability`, which are asked in their own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError, StoreError
from core.fields import Setting, settings_of
from ui.answers.pages import ANALYSES
from ui.cli.console import making_ready, print_json, print_table, tell, with_progress, write_new
from ui.cli.options import JSON, OWN_STORE, Filter, opened_store, refuse_beside, with_options

if TYPE_CHECKING:
    from storage.analysis.hidden_states import PolicyWithStates
    from storage.analysis.policy_diff import PolicyDiff
    from storage.analysis.second_opinions import EpisodeScope
    from storage.analysis.standings import PolicyInRun, PolicySide
    from storage.rows.summaries import RunSummary
    from storage.store import Store
    from ui.answers.asked import Asked
    from ui.answers.blocks import Answer
    from ui.export.rows import Rows

#: Of a table, so many rows are printed.
_MOST_ROWS = 30
PartOption = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="PART", help="Only this part of the answers; repeatable."),
]
AgainstOption = Annotated[
    str | None, typer.Option("--against", metavar="POLICY", help="Compare --policy (A) with this policy (B).")
]


@dataclass(frozen=True, slots=True)
class How:
    """How an analysis is asked and answered: choices within its questions, the store, and what its answers become."""

    choose: Annotated[tuple[str, ...], Setting(option="--choose", metavar="NAME=VALUE")] = ()
    """A choice of a question, as in the page's address; repeatable."""
    store: Annotated[str | None, OWN_STORE] = None
    as_json: Annotated[bool, JSON] = False
    html: Annotated[str | None, Setting(option="--html", metavar="FILE")] = None
    """Write the answers as a web page that needs no network."""

    def choices(self) -> dict[str, str]:
        """What --choose says, by name."""
        found = {}
        for one in self.choose or ():
            name, equals, value = one.partition("=")
            if not equals:
                raise ConfigError(f"--choose '{one}' lacks its value: write NAME=VALUE.")
            found[name] = value
        return found

    def give(self, name: str, asked: Asked, part: Sequence[str] | None = None) -> None:
        """Print the answers of an analysis, or write them as a page."""
        from ui.answers import pages, plain

        found = pages.answers(name, asked, part or ())
        asked.refuse_unknown(one for of in found.values() for one in of)
        if self.html is not None:
            from ui.export.page import analysis_page

            page = analysis_page(ANALYSES[name].title, asked.counts(), found, asked.things)
            write_new(Path(self.html), page)
        elif self.as_json:
            print_json({asked.things.split()[-1]: asked.counts(), **plain.page(found)})
        else:
            tell_answers(one for of in found.values() for one in of)


def command(name: str, about: str) -> Callable[..., None]:
    """The command that answers the questions of the analysis of this name."""

    @with_options()
    def run(*, filter: Filter, against: AgainstOption = None, part: PartOption = None, how: How) -> None:
        from ui.answers.asked import asked_of

        with opened_store(how.store) as opened:
            how.give(name, asked_of(opened, filter.chosen(), against, how.choices()), part)

    run.__doc__ = f"{about}\n\n[dim]$[/] trinity {ANALYSES[name].own_command or name} --policy random"
    return run


@with_options()
def compare(
    *,
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C ...]",
            help="Each a policy, a run or RUN/POLICY. A is the baseline; flips, tasks and families are those of B.",
        ),
    ],
    run: Annotated[str | None, typer.Option(help="Look for all policies in this run only.")] = None,
    part: PartOption = None,
    how: How,
) -> None:
    """Compare policies with a baseline over the tasks that both finished: accuracies, flips, difference, p.

    The difference is each accuracy minus the baseline's, with its paired 95 % interval over tasks. p is McNemar's,
    exact; where tasks were played more than once, p is that of sign flips by task. Forks and live plays never count.

    [dim]$[/] trinity compare single:jack cabc123 --run rp12

    [dim]$[/] trinity compare single:jack random cabc123 cdef456

    [dim]$[/] trinity compare rp12/random rp34/random --choose cell=only_b --choose page=all
    """
    from storage.analysis.standings import policies_with_episodes
    from ui.answers.asked import asked_of_policies, memory, side_words
    from ui.presentation.words import generations_of

    with opened_store(how.store) as opened:
        if run is not None:
            opened.runs.get(run)
        played = policies_with_episodes(opened)
        sides = _sides(played, policies, run)
        say = side_words(played, generations_of(opened))
        asked = asked_of_policies(opened, sides, say, choices=how.choices(), remember=memory())
        how.give("checkpoints", asked, part)


def _sides(played: Sequence[PolicyInRun], names: Sequence[str], run: str | None) -> list[PolicySide]:
    """What the arguments name, in order. ConfigError or StoreError when they cannot be compared."""
    from storage.analysis.defaults import MOST_SIDES
    from storage.analysis.standings import find_side

    if not 2 <= len(names) <= MOST_SIDES:
        raise ConfigError(f"Name two to {MOST_SIDES} policies, the baseline first; these are {len(names)}.")
    sides: dict[PolicySide, str] = {}
    for name in names:
        found = find_side(played, name, run)
        if len(found) > 1:
            raise ConfigError(
                f"'{name}' was played under {len(found)} settings, which are not to be averaged: name "
                f"{' or '.join(side.token for side in found)}."
            )
        if found[0] in sides:
            raise ConfigError(
                f"'{sides[found[0]]}' and '{name}' are the same: name two policies, or one policy in two runs as "
                "RUN/POLICY."
            )
        sides[found[0]] = name
    return list(sides)


@with_options()
def policy(
    *,
    checkpoints: Annotated[
        list[str],
        typer.Argument(metavar="CHECKPOINT CHECKPOINT ...", help="Two to eight, the baseline first."),
    ],
    filter: Filter,
    view: Annotated[str | None, typer.Option(metavar="ID", help="Only the episodes of a saved view.")] = None,
    episode: Annotated[str | None, typer.Option(metavar="ID", help="Only this episode.")] = None,
    by_draw: Annotated[
        bool,
        typer.Option(
            "--by-draw", help="Draw with the random numbers of the recorded choice, instead of the likeliest."
        ),
    ] = False,
    reencode: Annotated[
        bool,
        typer.Option(
            "--reencode",
            help="First let encoders read the transcripts again where stored states do not suffice, as with SVF.",
        ),
    ] = False,
    how: How,
) -> None:
    """Say how often checkpoints would choose as the first one does, at recorded turns.

    Stored hidden states go through each head: no model is asked. A choice that the rounding of a state could change is
    too close to call and counts neither way. Every checkpoint reads the transcript as it was recorded.

    [dim]$[/] trinity policy cabc123 cdef456 --where 'family == "math"'

    [dim]$[/] trinity policy cabc123 csvf789 --reencode --json
    """
    from storage.analysis.policy_diff import read_diff
    from storage.analysis.second_opinions import EpisodeScope
    from storage.filters.episode_filter import filter_of_address, for_totals
    from ui.answers.asked import memory
    from ui.answers.policy import asked_of_checkpoints
    from ui.presentation.words import generations_of, policy_name

    chosen = filter.chosen()
    with opened_store(how.store) as opened:
        if view:
            chosen = filter_of_address(chosen.to_query(), opened.views.get(view))
        if episode:
            opened.episodes.summary(episode)
        scope = EpisodeScope(for_totals(chosen), episode)
        if reencode:
            diff = read_diff(opened, scope, checkpoints, by_draw=by_draw)
            if diff.readable():
                _reencode(opened, diff, scope)
        ages = generations_of(opened)
        names = {one: policy_name(one, ages.get(one)) for one in checkpoints}
        choices = how.choices() | ({"by": "draw"} if by_draw else {})
        asked = asked_of_checkpoints(opened, scope, names, choices=choices, remember=memory())
        how.give("policy", asked)


def _reencode(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> None:
    """Read again in this process, as a run that a page can see and resume."""
    from ui.cli.play import follow
    from ui.runs.reading import RereadParts, plan_for

    plan = plan_for(diff, scope, store.now())
    assert plan is not None
    ready = RereadParts(plan)
    follow(store, ready, "turns read", plan.turns, lambda n: {"advance": n}).finished()


@with_options()
def requests(
    *,
    since: Annotated[
        str,
        typer.Option(metavar="AGE", help="How far back: 24h, 7d, 12w, 2026-08-01, or all of them by 'all'."),
    ] = "24h",
    filter: Filter,
    part: PartOption = None,
    how: How,
) -> None:
    """Say how the endpoint's requests ended, where their time went, what they cost beside the best single model of
    their pool, and what each tier is worth on tasks whose answers are known.

    [dim]$[/] trinity requests

    [dim]$[/] trinity requests --since 7d --where 'tier == "trinity" and key == "laptop"' --json
    """
    from ui.answers.asked import memory
    from ui.answers.requests.subject import asked_of_requests

    with opened_store(how.store) as opened:
        more = {"choices": how.choices(), "remember": memory()}
        asked = asked_of_requests(opened, filter.chosen(), since, now=opened.now(), **more)
        how.give("requests", asked, part)


@with_options()
def evolution(
    *,
    run: Annotated[
        str | None,
        typer.Argument(help="An evolution or a training; the newest if left out.", show_default=False),
    ] = None,
    update: Annotated[
        int | None,
        typer.Option(metavar="N", help="This generation or iteration; else the last.", show_default=False),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option("--with", metavar="RUN", help="A second one of the same kind, on the same axes."),
    ] = None,
    part: PartOption = None,
    how: How,
) -> None:
    """Say what an evolution or a training came to, update by update, as its page does.

    [dim]$[/] trinity evolution

    [dim]$[/] trinity evolution night --update 12 --part choices --json
    """
    from ui.answers.asked import memory
    from ui.answers.learning import asked_of_course
    from ui.runs.course import read_course

    with opened_store(how.store) as opened:
        first = learned_run(opened, run)
        second = learned_run(opened, beside) if beside else None
        if second and second.kind != first.kind:
            raise ConfigError(
                f"'{first.id}' and '{beside}' are of two kinds: name two evolutions or two trainings."
            )
        course, other = read_course(opened, first), read_course(opened, second) if second else None
        more = {"choices": how.choices(), "remember": memory()}
        how.give("evolution", asked_of_course(opened, course, update, other, **more), part)


def learned_run(store: Store, name: str | None) -> RunSummary:
    """The evolution or training of this id or name, else the newest, with updates. StoreError when there is none."""
    from ui.runs.queue import LEARNING

    if name is None:
        runs = [run for kind in LEARNING for run in store.runs.list(kind=kind) if run.generations]
        if not runs:
            raise StoreError(
                "No evolution or training has come to anything yet: begin one by trinity evolve."
            )
        return max(runs, key=lambda run: run.created)
    known = store.runs.find(name, *LEARNING)
    if known is None:
        raise StoreError(f"The store holds no evolution or training '{name}'.")
    found = store.runs.get(known)
    if not found.generations:
        raise StoreError(f"'{name}' has come to nothing yet: its start is not validated.")
    return found


class Turns(StrEnum):
    """Which turns of an episode."""

    FIRST = "first"
    ALL = "all"


@with_options()
def separability(
    context: typer.Context,
    *,
    run: Annotated[
        str | None, typer.Argument(help="A run. Left out: the newest with hidden states.", show_default=False)
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="A checkpoint that played in the run. Left out: its last generation.",
            show_default=False,
        ),
    ] = None,
    turns: Annotated[
        Turns, typer.Option(help="The first turn of every episode, or all of them.")
    ] = Turns.ALL,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Let this encoder read the questions of --tasks, in place of a run: a Hugging Face folder or hub id, "
            "or 'pocket'.",
            show_default=False,
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Questions that --encoder reads: pocket, pocket/FAMILY, a set of trinity tasks or a FILE.jsonl. "
            "Left out: pocket.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="What tells the questions apart: family, or a field of the lines of --tasks. Left out: family.",
            show_default=False,
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", min=1, help="Read at most so many questions. Left out: 1,500.", show_default=False
        ),
    ] = None,
    part: PartOption = None,
    how: How,
) -> None:
    """Read the task family and the chosen model off a checkpoint's hidden states and logits.

    Linear and RBF SVMs in cross-validation, all turns of a task in one fold, beside the majority class and
    the paper's figures; the Fisher ratio of the classes in their discriminant plane; and how far the reward's
    curvature is from one block per logit. The turns and made-up states come with --part turns, --part made_up.

    With --encoder or --tasks nothing needs to have been played: the encoder reads the questions of a task set, and
    their families, or what else their lines say, are read off its states, off their words (TF-IDF) and off their
    length, in the same folds.

    [dim]$[/] trinity separability

    [dim]$[/] trinity separability rp12 --policy cabc123 --turns first --json

    [dim]$[/] trinity separability --encoder Qwen/Qwen3-0.6B --tasks questions.jsonl --by subject
    """
    from storage.analysis.hidden_states import policies_with_states
    from ui.answers.asked import asked_of_states, memory
    from ui.answers.separability import too_few
    from ui.presentation.words import generations_of, policy_name

    with opened_store(how.store) as opened:
        if encoder or tasks or by or n:
            of_run = ("encoder", "tasks", "by", "n", "part", *settings_of(How))
            refuse_beside(context, "--encoder", *of_run)
            how.give("separability", _questions(opened, how, encoder, tasks, by, n), part)
            return
        chosen = chosen_policy(policies_with_states(opened), run, policy)
        name = policy_name(chosen.policy, generations_of(opened).get(chosen.policy))
        choices = how.choices() | ({"turns": turns.value} if turns is Turns.FIRST else {})
        asked = asked_of_states(
            opened, chosen, f"{name} in run {chosen.run_id}", choices=choices, remember=memory()
        )
        if few := too_few(asked):
            raise StoreError(few)
        how.give("separability", asked, part)


def _questions(
    store: Store, how: How, encoder: str | None, tasks: str | None, by: str | None, n: int | None
) -> Asked:
    """The questions of a task set as the encoder reads them now, with the time that is left."""
    from core.analysis.separability import MOST_POINTS
    from ui.answers.asked import asked_of_questions, memory
    from ui.runs import questions, wiring

    found = questions.find_questions(tasks or "pocket", by or "family", n or MOST_POINTS)
    with making_ready():
        reader = wiring.loaded_encoder(encoder or wiring.settings().encoder or "pocket")
    read = list(with_progress(questions.read(reader, found), "questions read", len(found.texts)))
    name, states = reader.identity.name, questions.as_states(found, read)
    return asked_of_questions(
        store, states, name, Path(found.tasks).name, choices=how.choices(), remember=memory()
    )


def chosen_policy(
    offered: Sequence[PolicyWithStates], run: str | None, policy: str | None
) -> PolicyWithStates:
    """The run and policy that are meant, else the newest run's last generation. StoreError when there is none."""
    if not offered:
        raise StoreError("No run has hidden states: only a checkpoint leaves them, so let one play first.")
    of_run = [one for one in offered if run in (None, one.run_id)]
    if not of_run:
        listed = ", ".join(dict.fromkeys(one.run_id for one in offered))
        raise StoreError(f"No hidden states are kept of a run '{run}'; there are some of: {listed}.")
    fitting = [one for one in of_run if policy in (None, one.policy)]
    if not fitting:
        listed = ", ".join(dict.fromkeys(one.policy for one in of_run))
        raise StoreError(f"No hidden states are kept of a policy '{policy}'; there are some of: {listed}.")
    return fitting[0]


def tell_answers(found: Iterable[Answer]) -> None:
    """Print answers as tables."""
    from ui.answers.blocks import Code
    from ui.export.rows import rows_of

    for i, one in enumerate(found):
        if i:
            tell()
        tell(one.question, "bold")
        tell(one.sentence)
        for block in (*one.blocks, *(block for block in one.measured if not isinstance(block, str))):
            match block:
                case str():
                    tell(block, "dim")
                case Code():
                    tell(block.text)  # as it is, so that it can be copied
                case _:
                    _table(rows_of(block, ids=True))


def _table(found: Rows) -> None:
    """The cells that have words: a terminal draws no bars."""
    if not found.rows:
        return
    if found.title:
        tell(found.title, "dim")
    kept = [i for i in range(len(found.headings)) if any(row[i].text for row in found.rows)]
    rows = [[row[i].text for i in kept] for row in found.rows[:_MOST_ROWS]]
    bars = [">" if found.rows[0][i].bar is not None else "" for i in kept]  # what bars say are numbers
    print_table([bar + found.headings[i] for bar, i in zip(bars, kept, strict=True)], rows)
    if len(found.rows) > _MOST_ROWS:
        tell(f"{len(found.rows) - _MOST_ROWS:,} more: --json has all.", "dim")
