"""The tree of commands: each with its place and its one line, imported when it is called."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from ui.answers.pages import ANALYSES
from ui.program import version as program_version

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as the list of commands needs it: its help in one line, and its function, or its own group of commands,
    as `module:name` where that is not `ui.cli.COMMAND:COMMAND`. `made`: the target makes the function of a command from
    its name and its help."""

    help: str
    target: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    made: bool = False

    def load(self, name: str) -> Any:
        """The command itself; its module is imported."""
        found = resolve_name(self.target or f"ui.cli.{name}:{name}")
        found = found(name, self.help) if self.made else found
        around = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=name)
        else:
            around.command(name, context_settings=dict(self.settings))(found)
        return get_group(around).commands[name]


class Commands(TyperGroup):
    """All commands, in the order in which `--help` shows them: `--help` and the shell's completion know each by its one
    line, and `resolve_command` imports the one that is called."""

    listed: ClassVar[Mapping[str, Listed]] = {
        "ui": Listed("Open the app on http://127.0.0.1:8501."),
        "serve": Listed("Serve the pool as one OpenAI-compatible model."),
        "keys": Listed("Make, list and revoke the endpoint's API keys.", "ui.cli.keys:app"),
        "worker": Listed("Play queued runs one by one: live problems, forks, evolutions."),
        "run": Listed("Play tasks under one or more policies, record every turn, print accuracies."),
        "evolve": Listed(
            "Evolve a coordinator by separable CMA-ES, resumable bit for bit.", "ui.cli.learning:evolve"
        ),
        "train": Listed(
            "Train a Conductor: a language model that writes whole workflows (GRPO).", "ui.cli.learning:train"
        ),
        "tune": Listed("Find out what is worth serving: single models, a cascade, an evolved coordinator."),
        "reproduce": Listed("Reproduce the paper's tables: evolve, play, print."),
        "checkpoints": Listed("List, export and import checkpoints.", "ui.cli.checkpoints:app"),
        "episodes": Listed("List, read and delete recorded episodes.", "ui.cli.episodes:app"),
        "label": Listed("Label an episode, one of its turns or words of its reply.", "ui.cli.labels:label"),
        "labels": Listed("List labels, an episode's label history, how far reviewers agree."),
        "compare": Listed(ANALYSES["checkpoints"].command, "ui.cli.analysis:compare"),
        "fork": Listed("Change one thing at one turn of an episode, and see whether it matters."),
        **{
            name: Listed(one.command, "ui.cli.analysis:command", made=True)
            for name, one in ANALYSES.items()
            if not one.own_command
        },
        **{
            name: Listed(ANALYSES[name].command, f"ui.cli.analysis:{name}")
            for name in ("policy", "evolution", "requests", "separability")
        },
        "prune": Listed("Remove hidden states, prompts, texts, episodes or whole runs."),
        "import": Listed("Bring exported runs into the store.", "ui.cli.exchange:import_"),
        "export": Listed("Write runs or episodes to a file.", "ui.cli.exchange:export"),
        "pool": Listed(
            "Write, list and check a pool: the models a coordinator chooses between.", "ui.cli.pool:app"
        ),
        "encoders": Listed(
            "List, add, measure and remove encoders: the small models that read transcripts.",
            "ui.cli.encoders:app",
        ),
        "engine": Listed(
            "Ray clusters: a file to start one from, and what the machines of one have.", "ui.cli.engine:app"
        ),
        "tasks": Listed(
            "Add published benchmarks, list tasks of your own, and check how answers are graded.",
            "ui.cli.tasks:app",
        ),
        "outcomes": Listed(
            "Add, list, show and remove outcome tables: what real models answered, to play from.",
            "ui.cli.outcomes:app",
        ),
        "pocket": Listed(
            "The embedded small models: their cards, temperatures and training.", "ui.cli.pocket:app"
        ),
        "bench": Listed(
            "Run a benchmark beside its peer.",
            # What stands behind the name is the benchmark's own, --help too.
            settings={
                "allow_extra_args": True,
                "allow_interspersed_args": False,
                "ignore_unknown_options": True,
            },
        ),
        "doctor": Listed("Show where the store is, its schema, how to back it up."),
    }

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, one in self.listed.items():
            self.add_command(TyperCommand(name, help=one.help, rich_markup_mode=self.rich_markup_mode), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.listed:
            command = self.listed[name].load(name)
        return name, command, rest


app = typer.Typer(
    name="trinity",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="See why a coordinator of language models did what it did.\n\n"
    "Begin with [bold]trinity ui[/]: it opens the app with recorded sample runs and needs no key and no "
    "network. Then record something of your own:\n\n"
    "[dim]$[/] trinity run --policy single:jack --policy random --tasks pocket --n 20",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(program_version())
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log each step to stderr.")] = False,
    version: Annotated[  # eager: its callback has answered before a command is looked for
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    if not verbose:
        from ui.cli.replies import retry_summary

        context.with_resource(retry_summary())
