"""`trinity outcomes`: tables of what real models answered: add one from files, list, show, remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import ConfigError, TaskError
from ui.cli.analysis import How, PartOption
from ui.cli.console import percent, print_json, print_table, progress, say, tell
from ui.cli.options import (
    DeviceOption,
    DtypeOption,
    EncoderOption,
    JsonOption,
    StoreOption,
    opened_store,
    with_options,
)

if TYPE_CHECKING:
    from core.analysis.metrics import Mean
    from core.outcomes.table import OutcomeTable

#: So many disagreements are printed, and characters of a cell; --json has all.
_MOST_SHOWN, _CELL = 40, 60

app = typer.Typer(
    no_args_is_help=True,
    help="Outcome tables: what models answered to the questions of an evaluation that you, or others, have made. A "
    "pool can reply from one, so that coordinators are evolved and compared without a call.\n\n"
    "[dim]$[/] trinity outcomes add mmlu-pro model_outputs_*.zip\n\n"
    "[dim]$[/] trinity run --pool outcomes:mmlu-pro --tasks outcomes:mmlu-pro --policy 'single:*'",
)

_KINDS = """Files are recognised by their content:

- mmlu-pro: MMLU-Pro's model_outputs_*.zip

- zeroeval: ZeroEval's JSON, a file for each model, or a zip of them

- lm-eval: samples_*.jsonl of lm-eval-harness; the model's name from results_*.json beside, or --model

- inspect: .eval logs of Inspect, one model each

- long-csv: a row for each task and model with its score; columns task, model, score, cost, tokens_in, tokens_out,
seconds, milliseconds, sample, reply, answer, key, question, family, grader, error, under these or other usual names, or
named by --columns task=ID,score=OK; questions also from JSON Lines beside it with task_id and prompt

- wide-csv: a row for each task, a column for each model with its score from 0 to 1, or with its answer where a column
key has the right ones; --columns 'model=A|B' says which columns are models

- own: JSON Lines or Parquet. Tasks: {"task": "t1", "question": "...", "answer": "B", "grader": "choice", "family":
"law"}; outcomes: {"task": "t1", "model": "m", "sample": 0, "reply": "...", "answer": "B", "right": true, "score": 1,
"tokens_in": 90, "tokens_out": 12, "cost": 0.001, "seconds": 1.5, "error": ""}, all but task and model optional;
verdicts: {"task": "t1", "model": "m", "judged": "B", "verdict": "ACCEPT"}; plans: {"task": "t1", "model": "m", "plan":
"..."}

Where a key is there, replies are read and graded here, and the table's own marks are kept beside. A question counts
once, and of a model's answers to it the first of each sample. A table appears whole or not at all.

[dim]$[/] trinity outcomes add mmlu-pro model_outputs_*.zip

[dim]$[/] trinity outcomes add mine results.csv --columns task=ID,model=LLM,score=ok --source 'our evaluation of May'

[dim]$[/] trinity outcomes add today --served --since 1d"""


@app.command(help=f"Make an outcome table from files, folders or zip archives.\n\n{_KINDS}")
def add(
    name: Annotated[str, typer.Argument(help="The table's name: a-z 0-9 . _ -")],
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Files, folders or zip archives.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--as", metavar="KIND", help="The kind of the files, if not by content.")
    ] = "",
    columns: Annotated[
        str, typer.Option("--columns", metavar="OURS=THEIRS,...", help="Which column of a CSV is what.")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="The model of files that name none.")] = "",
    grader: Annotated[
        str, typer.Option("--grader", help="How all answers are graded; recorded: by the table's own marks.")
    ] = "",
    licence: Annotated[
        str, typer.Option("--licence", help="The data's licence; else by the file LICENSE beside.")
    ] = "",
    source: Annotated[
        str, typer.Option("--source", help="Where the data comes from; else the files' names.")
    ] = "",
    served: Annotated[
        bool, typer.Option("--served", help="In the place of files: the endpoint's requests with feedback.")
    ] = False,
    since: Annotated[
        str,
        typer.Option("--since", metavar="AGE", help="With --served: how far back, 1d, 12w or 2026-08-01."),
    ] = "1d",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    if served is bool(paths):
        raise ConfigError("Name the files of the table, or give --served for the endpoint's requests.")
    if served:
        from tempfile import TemporaryDirectory

        from storage.upkeep.retention import moment_of
        from ui.endpoint.feedback import write_served

        with opened_store(store) as opened, TemporaryDirectory() as folder:
            at = moment_of(since, opened.now())
            write_served(opened, at.timestamp(), Path(folder))
            source = source or f"requests to the endpoint since {at:%Y-%m-%d %H:%M} UTC"
            add(name, [Path(folder)], "own", source=source, licence=licence, as_json=as_json)
        return
    assert paths
    from core.outcomes.build import add_table
    from core.outcomes.kinds import Wishes, columns_named
    from ui.runs import wiring

    wishes = Wishes(columns_named(columns), model.strip(), grader.strip())
    with progress() as bar:
        line = bar.add_task("rows", total=None, note="")
        table = add_table(
            name,
            paths,
            wiring.data_folder(),
            kind=kind,
            wishes=wishes,
            licence=licence,
            source=source,
            processes=wiring.settings().processes,
            told=lambda what, n: bar.update(line, description=what, completed=n),
        )
    if as_json:
        print_json(table.card)
        return
    card = table.card
    tell(
        f"{name} has {card.tasks:,} tasks, {len(card.models)} models and {card.rows:,} answers: play it by --pool "
        f"outcomes:{name} --tasks outcomes:{name}."
    )
    for note in card.notes:
        tell(note)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the outcome tables that are here.

    [dim]$[/] trinity outcomes list
    """
    from core.outcomes.table import tables
    from ui.runs import wiring

    found = [one.card for one in tables(wiring.data_folder())]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.name,
            one.kind,
            f"{one.tasks:,}",
            len(one.models),
            f"{one.rows:,}",
            one.licence,
            one.source[:_CELL],
        )
        for one in found
    ]
    print_table(["name", "kind", ">tasks", ">models", ">answers", "licence", "where from"], rows)
    if not found:
        say("Add one by trinity outcomes add NAME FILE.")


@app.command()
@with_options()
def show(
    *,
    name: Annotated[str, typer.Argument(help="A name of trinity outcomes list.")],
    disagreements: Annotated[
        bool, typer.Option("--disagreements", help="The answers that we grade otherwise than the table does.")
    ] = False,
    fold: Annotated[
        int, typer.Option(metavar="K", help="0 to 4: what is split into evolve, validation and test.")
    ] = 0,
    split: Annotated[
        str, typer.Option(help="Whose accuracies: all, evolve, validation or test questions.")
    ] = "all",
    part: PartOption = None,
    how: How,
) -> None:
    """Show a table: where it comes from, what each model answered, how far our grades agree with its own marks, and
    what a coordinator of its models could win.

    Rules are chosen on the evolve and validation splits and measured on the test split.

    [dim]$[/] trinity outcomes show mmlu-pro

    [dim]$[/] trinity outcomes show mmlu-pro --part together --choose first=MODEL --choose second=MODEL

    [dim]$[/] trinity outcomes show mmlu-pro --part questions --choose domain=law --choose case=nobody

    [dim]$[/] trinity outcomes show mmlu-pro --disagreements
    """
    from core.outcomes.table import load_table
    from ui.answers import pages, plain
    from ui.answers.asked import memory
    from ui.answers.outcomes.subject import asked_of_table
    from ui.answers.outcomes.won import summary
    from ui.runs import wiring

    table = load_table(name, wiring.data_folder())
    if disagreements:
        _tell_disagreements(table, how.as_json)
        return
    with opened_store(how.store) as opened:
        asked = asked_of_table(opened, table, fold, split, choices=how.choices(), remember=memory())
        if how.as_json and how.html is None:
            found = pages.answers("outcomes", asked, part or ())
            asked.refuse_unknown(one for of in found.values() for one in of)
            print_json({**_plain(table, summary(asked)), **plain.page(found)})
            return
        if how.html is None and not part:
            _tell_card(table)
        how.give("outcomes", asked, part)


def _models(table: OutcomeTable) -> list[dict[str, Any]]:
    """Of each model its accuracy, its coverage, how often our grades agree with the table's marks, and what it cost."""
    import numpy as np

    right = table.over_samples("right")
    cost = table.over_samples("cost")
    found = []
    for place, model in enumerate(table.card.models):
        known, paid = np.isfinite(right[:, place]), np.isfinite(cost[:, place])
        agreed, marked = table.card.grading.get(model, (0, 0))
        found.append(
            {
                "name": model,
                "accuracy": float(right[known, place].mean()) if known.any() else None,
                "tasks": int((table.count[:, place] > 0).sum()),
                "coverage": float((table.count[:, place] > 0).mean()),
                "marked": marked,
                "agreement": agreed / marked if marked else None,
                "usd_per_task": float(cost[paid, place].mean()) if paid.any() else None,
            }
        )
    return found


def _plain(table: OutcomeTable, summary: dict[str, Any]) -> dict[str, Any]:
    """The card with what could be won by fixed names; of each model what both say."""
    from dataclasses import asdict

    models = [{**card, **worth} for card, worth in zip(_models(table), summary["models"], strict=True)]
    return {**asdict(table.card), **summary, "models": models}


def _tell_card(table: OutcomeTable) -> None:
    card = table.card
    facts = [
        ("name", card.known_as),
        ("kind", card.kind),
        ("where from", card.source),
        ("licence", card.licence or "not known: see where it came from"),
        ("tasks", f"{card.tasks:,}{'' if card.texts else ', without question text'}"),
        ("answers", f"{card.rows:,}, of a model to a task at most {card.samples}"),
    ]
    print_table(["what", "value"], facts)
    rows = [
        (
            one["name"],
            percent(one["accuracy"]),
            f"{one['tasks']:,}",
            percent(one["coverage"]),
            percent(one["agreement"]),
            f"{one['marked']:,}",
            "-" if one["usd_per_task"] is None else f"{one['usd_per_task']:.5f}",
        )
        for one in _models(table)
    ]
    tell()
    columns = [
        "model",
        ">right",
        ">tasks",
        ">of all tasks",
        ">grades agree with marks",
        ">of marks",
        ">USD a task",
    ]
    print_table(columns, rows)
    tell()
    for note in card.notes:
        tell(note)


def _tell_disagreements(table: OutcomeTable, as_json: bool) -> None:
    """The rows that we grade otherwise than the table marks them."""
    import numpy as np

    columns = table.numbers
    marked = (columns["marked"] >= 0) & (columns["right"] >= 0)
    places = np.flatnonzero(marked & (columns["marked"] != columns["right"]))
    if as_json:
        print_json([_case(table, int(place)) for place in places])
        return
    tell(
        f"{len(places):,} of {int(marked.sum()):,} marked answers are graded otherwise here than the table marks them."
    )
    cases = [_case(table, int(place)) for place in places[:_MOST_SHOWN]]
    rows = [
        (
            one["task"],
            one["model"],
            one["key"][:_CELL],
            (one["answer"] or "")[:_CELL],
            "right" if one["right"] else "wrong",
            "right" if one["marked"] else "wrong",
        )
        for one in cases
    ]
    if rows:
        print_table(["task", "model", "key", "answer", "here", "the table"], rows)
    if len(places) > _MOST_SHOWN:
        tell(f"{len(places) - _MOST_SHOWN:,} more: --json has them all, with the replies.")


def _case(table: OutcomeTable, place: int) -> dict[str, Any]:
    columns, texts = table.numbers, table.texts
    task = table.tasks[int(columns["task"][place])]
    return {
        "task": task.id,
        "model": table.card.models[int(columns["model"][place])],
        "sample": int(columns["sample"][place]),
        "key": task.answer,
        "answer": texts["answer"][place].as_py(),
        "right": bool(columns["right"][place]),
        "marked": bool(columns["marked"][place]),
        "reply": texts["reply"][place].as_py(),
    }


@app.command()
@with_options()
def play(
    *,
    name: Annotated[str, typer.Argument(help="A name of trinity outcomes list.")],
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            metavar="NAME",
            help="As in trinity run, or an evolution's name, as in 'mine{fold}'; may be given several times.",
        ),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="NAME",
            help="A policy that the others are put against; else the first; may be given several times.",
        ),
    ] = None,
    folds: Annotated[
        str, typer.Option("--folds", help="Which of the five folds, as in 0,1,2.")
    ] = "0,1,2,3,4",
    split: Annotated[str, typer.Option(help="Whose questions are played: test or validation.")] = "test",
    turns: Annotated[int, typer.Option(min=1, max=20, help="A coordinator's turns.")] = 5,
    argmax: Annotated[
        bool,
        typer.Option("--argmax/--sampled", help="A coordinator's likeliest choice, or one that is drawn."),
    ] = True,
    encoder: EncoderOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play policies on every fold of a table: each is chosen, or taught, on a fold's evolve and validation questions,
    and plays its test questions. No episode is stored, which trinity run does; heads that are taught are kept.

    [dim]$[/] trinity outcomes play mmlu-pro --policy agree:family --policy vote:1 --policy sure:family
    """
    from datetime import date

    from core.outcomes.table import load_table
    from ui.runs import wiring
    from ui.runs.paper.folds import Conditions, FoldsTable, play_folds, rows_of

    if split not in ("test", "validation"):
        raise ConfigError(f"--split cannot be '{split}': choose test or validation.")
    chosen = [int(one) if one.strip().isdecimal() else -1 for one in folds.split(",")]
    table, settings = (
        load_table(name, wiring.data_folder()),
        wiring.settings(encoder=encoder, device=device, dtype=dtype),
    )
    how = Conditions(settings.encoder, settings.computing, turns, argmax=argmax, split=split)
    with opened_store(store) as opened, progress() as bar:
        line = bar.add_task("policies", total=len(policy) * len(chosen), note="")
        played = []
        for one in play_folds(opened, table, policy, chosen, how):
            played.append(one)
            bar.update(line, advance=1)
    card, references = table.card, against or [policy[0]]
    rows = rows_of(played, references)
    if as_json:
        print_json(
            FoldsTable(
                name=card.name,
                table=card.known_as,
                source=card.source,
                licence=card.licence,
                models=len(card.models),
                measured=str(date.today()),
                encoder=Path(settings.encoder or "").name,
                folds=chosen,
                split=split,
                against=references,
                rows=rows,
            )
        )
        return
    print_table(
        [
            *("policy", ">solved", ">95 %", ">calls", ">tokens"),
            *(head for other in references for head in (f">less {other}", ">95 %")),
        ],
        [
            (
                row.policy,
                percent(row.solved.mean),
                f"{percent(row.solved.low)} to {percent(row.solved.high)}",
                f"{row.calls:.2f}",
                f"{row.tokens:,.0f}",
                *(word for other in references for word in _less_words(row.less.get(other))),
            )
            for row in rows
        ],
    )


@app.command()
def permute(
    name: Annotated[str, typer.Argument(help="A name of trinity outcomes list.")],
    to: Annotated[
        str, typer.Argument(metavar="AS", help="The name of the table that is made: a-z 0-9 . _ -")
    ],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws who is right.")] = 0,
) -> None:
    """Make a control of an outcome table: in each split, each model's replies are right as often as before, but which
    are is drawn by chance. A coordinator that is evolved on it must not do better than the best model alone.

    Questions, replies and costs stay. No answers can be compared: which are the same would tell what is right.

    [dim]$[/] trinity outcomes permute mmlu-pro mmlu-pro-permuted
    """
    from core.outcomes.permute import permute_table
    from core.outcomes.table import load_table
    from ui.runs import wiring

    made = permute_table(load_table(name, wiring.data_folder()), to, seed, wiring.data_folder())
    tell(f"{to} has the questions and replies of {name}, right by chance: {made.card.rows:,} answers of "
         f"{len(made.card.models)} models. Play it by --pool outcomes:{to} --tasks outcomes:{to}.")  # fmt: skip


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="A name of trinity outcomes list.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove an outcome table. Runs that were played from it stay, and can no longer be played on.

    [dim]$[/] trinity outcomes remove mmlu-pro
    """
    from core.outcomes.table import load_table, remove_table
    from ui.runs import wiring

    try:
        card = load_table(name, wiring.data_folder()).card
    except TaskError as error:
        if "damaged" not in str(error):
            raise
        card = None
    if not yes:
        what = "which is damaged" if card is None else f"{card.rows:,} answers of {len(card.models)} models"
        typer.confirm(f"Remove {name}, {what}?", abort=True, err=True)
    remove_table(name, wiring.data_folder())
    say(f"Removed {name}.")


def _less_words(less: Mean | None) -> tuple[str, str]:
    if less is None:
        return "-", "-"
    return f"{100 * less.mean:+.2f}", f"{100 * less.low:+.2f} to {100 * less.high:+.2f}"
