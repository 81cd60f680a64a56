"""`trinity tasks`: published benchmarks as task sets, what is in a task file, and whether its answers are graded as a
person would."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import TaskError
from ui.cli.console import print_json, print_table, tell, with_progress
from ui.cli.options import JsonOption

app = typer.Typer(
    no_args_is_help=True,
    help="Tasks of your own and of published benchmarks: what a file holds, and how answers to it are graded.\n\n"
    "Of these benchmarks 'add' reads the files, which you have to download yourself; 'list' says where they are "
    "published: aime, bigcodebench, gpqa-diamond, gsm8k, humaneval, livecodebench, math500, mbpp, mmlu, mmlu-pro, "
    "mt-bench, mt-bench-101, rlpr\n\n"
    'A line of a file of your own is {"question": ..., "answer": ..., "grader": ...}. Graders:\n\n'
    "- exact, number, choice, math: a text, a number, a letter, an expression in LaTeX\n\n"
    '- program: a Python program that the model writes, with "tests" in place of "answer", such as '
    '[{"input": "3 4\\n", "output": "7\\n"}, "assert add(3, 4) == 7"], {"call": "add", "arguments": [3, 4], '
    '"value": 7} or {"unittest": "class ...", "calls": "add"}; the first may be {"before": "import math", "libraries": '
    '["numpy"]}, what is run before the program and may be imported; run in a sandbox (bubblewrap)\n\n'
    '- judge: a whole reply, which the model with judge = true in pool.toml rates from 1 to 10; "answer" is a '
    "reference for it and may be left out; rated 7 or more, a reply is right\n\n"
    "- python:FILE.py:FUNCTION: a function of your own beside the task file: it takes what was said, the answer and, "
    "if it has a third parameter, the question, and returns True or False\n\n"
    "[dim]$[/] trinity tasks list my.jsonl\n\n"
    "[dim]$[/] trinity tasks add math500 test.jsonl",
)

#: So many disagreements are printed; --json has all.
MOST_SHOWN = 40


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="How --tasks will name the set.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="The benchmark's own files as they are published: JSON Lines, JSON, CSV or Parquet, also .gz."
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="SET", help="Which benchmark it is. Left out: the one that its fields show."
        ),
    ] = None,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip-faulty", help="Leave out faulty rows and count them, instead of refusing the files."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a task set of a published benchmark's own files, with the paper's splits; nothing is downloaded.

    The set lies in the data folder, and --tasks NAME means it from then on.

    [dim]$[/] trinity tasks add math500 test.jsonl

    [dim]$[/] trinity tasks add lcb test.jsonl test6.jsonl --as livecodebench
    """
    from core.settings import data_folder
    from core.tasks.adding import add_set

    added = add_set(name, files, data_folder(), kind=kind, skip=skip)
    published = added.published
    splits, left_out = added.splits, added.left_out
    if as_json:
        print_json(
            {
                "name": name,
                "set": published.name,
                "path": str(added.path),
                "bytes": added.bytes,
                "tasks": splits.total(),
                "splits": dict(splits),
                "left_out": dict(left_out),
            }
        )
        return
    rows = [(*key, n) for key, n in sorted(added.tasks.items())]
    print_table(["split", "family", "grader", ">tasks"], rows)
    each = ", ".join(f"{splits[one]:,} {one}" for one in ("evolve", "validation", "test") if splits[one])
    tell(
        f"{name}: {splits.total():,} tasks of {published.name} ({each}), {added.bytes / 1e6:,.1f} MB, {added.path}"
    )
    tell(f"Splits: {published.splits.words}. Published: {published.sizes}. Licence: {published.licence}.")
    for reason, n in left_out.most_common():
        tell(f"Left out: {n:,}, {reason}.")
    tell(f"Play it: trinity run --policy random --tasks {name} --pool pool.toml")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="A set that 'list' shows as added.")],
) -> None:
    """Remove a task set that was added, with its tests; recorded runs keep their episodes.

    [dim]$[/] trinity tasks remove math500
    """
    from core.settings import data_folder
    from core.tasks.adding import remove_set

    remove_set(name, data_folder())
    tell(f"The task set {name} is removed.")


@app.command("list")
def list_(
    file: Annotated[
        str | None,
        typer.Argument(
            help="A task file, one JSON object per line, or a set that was added. Left out: all sets by name."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a task file and count its tasks by split, family and grader; the first bad line is named.

    Without a file: the sets that were added here, and the published ones that 'add' can read, with their addresses.

    [dim]$[/] trinity tasks list my.jsonl

    [dim]$[/] trinity tasks list
    """
    if file is None:
        _list_sets(as_json)
        return
    from core.tasks.sets import load_task_file, read_task_file

    tasks = read_task_file(Path(file)) if Path(file).is_file() else load_task_file(file)
    counted = Counter((task.split, task.family, task.grader) for task in tasks)
    if as_json:
        print_json(
            [{"split": s, "family": f, "grader": g, "n": n} for (s, f, g), n in sorted(counted.items())]
        )
        return
    print_table(["split", "family", "grader", ">tasks"], [(*key, n) for key, n in sorted(counted.items())])


def _list_sets(as_json: bool) -> None:
    """The sets that were added, and those that can be."""
    from core.settings import data_folder
    from core.tasks.adding import files_of
    from core.tasks.published import PUBLISHED
    from core.tasks.sets import added_sets

    folder = data_folder()
    sizes = {name: sum(one.stat().st_size for one in files_of(name, folder)) for name in added_sets()}
    if as_json:
        print_json(
            {
                "added": [{"name": name, "bytes": size} for name, size in sizes.items()],
                "published": [
                    {
                        "name": one.name,
                        "fields": one.fields,
                        "grader": one.grader,
                        "splits": one.splits.words,
                        "source": one.source,
                        "licence": one.licence,
                        "sizes": one.sizes,
                    }
                    for one in PUBLISHED.values()
                ],
            }
        )
        return
    if sizes:
        print_table(["added here", ">MB"], [(name, f"{size / 1e6:,.1f}") for name, size in sizes.items()])
        tell()
    print_table(
        ["published", "grader", "where", "licence"],
        [(one.name, one.grader, one.source, one.licence) for one in PUBLISHED.values()],
    )
    tell()
    for one in PUBLISHED.values():
        tell(f"{one.name}: {one.sizes}. Splits: {one.splits.words}.")


@app.command()
def check(
    file: Annotated[
        Path,
        typer.Argument(
            help='Lines of {"answer": ..., "said": ..., "grader": ..., "right": true or false}; "tests" in place of '
            '"answer" for a program.'
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Grade replies against their answers, and show where the grade differs from "right", the judgement of a person.

    A line may have its "question": units and the texts of choices are read from it. Exit code 1 when one differs.

    [dim]$[/] trinity tasks check graded.jsonl
    """
    lines = _lines(file)
    verdicts = _grade(lines, file.parent)
    wrong = [
        {**one, "graded": verdict}
        for one, verdict in zip(lines, verdicts, strict=True)
        if verdict != one["right"]
    ]
    counts = {
        "n": len(lines),
        "agree": len(lines) - len(wrong),
        "false_right": sum(one["graded"] for one in wrong),
        "false_wrong": sum(not one["graded"] for one in wrong),
    }
    if as_json:
        print_json({**counts, "differs": wrong})
    else:
        tell(
            f"{counts['agree']:,} of {counts['n']:,} answers are graded as they are labelled; "
            f"{counts['false_right']:,} wrong ones count as right, {counts['false_wrong']:,} right ones as wrong."
        )
        if wrong:
            rows = [
                (one["grader"], one["answer"][:40], one["said"][:60], "right" if one["graded"] else "wrong")
                for one in wrong[:MOST_SHOWN]
            ]
            print_table(["grader", "answer", "said", "graded"], rows)
        if len(wrong) > MOST_SHOWN:
            tell(f"{len(wrong) - MOST_SHOWN:,} more: --json has them all.")
    if wrong:
        raise typer.Exit(1)


def _grade(lines: list[dict[str, Any]], folder: Path) -> list[bool]:
    """Whether each answer is right, by graders of one's own from this folder too."""
    from core.episode import Grade, Task
    from core.grader import own_grader
    from core.play.judging import final_verdicts
    from core.tasks.graders import grading_of
    from core.tasks.own_graders import find_function
    from ui.runs import wiring

    tasks = [
        Task(str(i), one.get("question", ""), one["answer"], one["grader"]) for i, one in enumerate(lines)
    ]
    own = {task: find_function(task.grader, folder) for task in tasks if own_grader(task.grader)}
    grade = grading_of(tasks, own, wiring.settings().processes)
    found = grade([Grade(task, one["said"]) for task, one in zip(tasks, lines, strict=True)])
    return [
        verdict for one in with_progress(found, "answers", len(found)) for verdict in final_verdicts([one])
    ]


def _lines(file: Path) -> list[dict[str, Any]]:
    """The labelled answers of a file, the tests of a program as its answer; TaskError that names the first bad line."""
    from core.grader import own_grader
    from core.tasks.sets import read_answer, read_function, read_grader
    from core.texts import read_text

    try:
        text = read_text(file)
    except (OSError, UnicodeError) as error:
        raise TaskError(f"The file {file} cannot be read ({error}).") from None
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"Line {number} of {file.name}"
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            raise TaskError(f"{where} is not valid JSON: write one object per line.") from None
        if isinstance(one, dict) and one.get("grader") == "program":
            one["answer"] = read_answer(one, "program", where)
        texts = ("answer", "said", "grader")
        if not isinstance(one, dict) or not all(isinstance(one.get(name), str) for name in texts):
            raise TaskError(f'{where} needs texts for "answer", "said" and "grader".')
        if not isinstance(one.get("right"), bool) or not isinstance(one.get("question", ""), str):
            raise TaskError(
                f'{where} needs true or false for "right", and a text for "question" if it has one.'
            )
        if own_grader(grader := read_grader(one, where)):
            read_function(grader, file, where)
        found.append(one)
    if not found:
        raise TaskError(f"The file {file.name} is empty: give one JSON object per line.")
    return found
