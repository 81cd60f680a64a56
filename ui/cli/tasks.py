"""`trinity tasks`: what is in a task file, and whether its answers are graded as a person would."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import TaskError
from ui.cli.console import JsonOption, print_json, print_table, tell

app = typer.Typer(
    no_args_is_help=True,
    help="Tasks of your own: what a file holds, and how answers to it are graded.\n\n"
    "[dim]$[/] trinity tasks list my.jsonl",
)

#: So many disagreements are printed; --json has all.
MOST_SHOWN = 40


@app.command("list")
def list_(
    file: Annotated[Path, typer.Argument(help="A task file, one JSON object per line.")],
    as_json: JsonOption = False,
) -> None:
    """Read a task file and count its tasks by split, family and grader; the first bad line is named.

    [dim]$[/] trinity tasks list my.jsonl
    """
    from core.tasks.sets import read_task_file

    counted = Counter((task.split, task.family, task.grader) for task in read_task_file(file))
    if as_json:
        print_json(
            [{"split": s, "family": f, "grader": g, "n": n} for (s, f, g), n in sorted(counted.items())]
        )
        return
    print_table(["split", "family", "grader", ">tasks"], [(*key, n) for key, n in sorted(counted.items())])


@app.command()
def check(
    file: Annotated[
        Path,
        typer.Argument(help='Lines of {"answer": ..., "said": ..., "grader": ..., "right": true or false}.'),
    ],
    as_json: JsonOption = False,
) -> None:
    """Grade what was said against the answers, and show where that differs from "right", which a person decided.

    A line may have the "question", by which units and the texts of choices are read. Exit code 1 when one differs.

    [dim]$[/] trinity tasks check graded.jsonl
    """
    from core.episode import Grade, Task
    from core.tasks.graders import grade_many

    lines = _lines(file)
    tasks = [
        Task(str(i), one.get("question", ""), one["answer"], one["grader"]) for i, one in enumerate(lines)
    ]
    verdicts = grade_many([Grade(task, one["said"]) for task, one in zip(tasks, lines, strict=True)])
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
            print_table(
                ["grader", "answer", "said", "graded"],
                [
                    (
                        one["grader"],
                        one["answer"][:40],
                        one["said"][:60],
                        "right" if one["graded"] else "wrong",
                    )
                    for one in wrong[:MOST_SHOWN]
                ],
            )
        if len(wrong) > MOST_SHOWN:
            tell(f"{len(wrong) - MOST_SHOWN:,} more: --json has them all.")
    if wrong:
        raise typer.Exit(1)


def _lines(file: Path) -> list[dict[str, Any]]:
    """The labelled answers of a file; TaskError that names the first bad line."""
    from core.tasks.sets import FILE_GRADERS

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
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
        texts = ("answer", "said", "grader")
        if not isinstance(one, dict) or not all(isinstance(one.get(name), str) for name in texts):
            raise TaskError(f'{where} needs texts for "answer", "said" and "grader".')
        if not isinstance(one.get("right"), bool) or not isinstance(one.get("question", ""), str):
            raise TaskError(
                f'{where} needs true or false for "right", and a text for "question" if it has one.'
            )
        if one["grader"] not in FILE_GRADERS:
            raise TaskError(f"{where} has an unknown grader: choose {', '.join(FILE_GRADERS)}.")
        found.append(one)
    if not found:
        raise TaskError(f"The file {file.name} is empty: give one JSON object per line.")
    return found
