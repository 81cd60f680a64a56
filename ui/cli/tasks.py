"""`trinity tasks`: what is in a task file, and whether its answers are graded as a person would."""

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
    help="Tasks of your own: what a file holds, and how answers to it are graded.\n\n"
    'A line is {"question": ..., "answer": ..., "grader": ...}. Graders:\n\n'
    "- exact, number, choice, math: a text, a number, a letter, an expression in LaTeX\n\n"
    '- program: a Python program that the model writes, with "tests" in place of "answer", such as '
    '[{"input": "3 4\\n", "output": "7\\n"}, "assert add(3, 4) == 7"]; run in a sandbox (bubblewrap)\n\n'
    "- python:FILE.py:FUNCTION: a function of your own beside the task file: it takes what was said, the answer and, "
    "if it has a third parameter, the question, and returns True or False\n\n"
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
    from core.play.drive import final_verdicts
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
