"""`trinity pool`: write a pool.toml, list a pool, ask every model once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.settings import POCKET_POOL
from ui.answers.pages import ANALYSES
from ui.cli.analysis import command
from ui.cli.console import print_json, print_table, say, tell, with_progress, write_new
from ui.cli.options import JsonOption, PoolOption
from ui.runs.settings import is_recorded

if TYPE_CHECKING:
    from core.episode import Reply
    from core.play.role_check import RoleCheck

app = typer.Typer(
    no_args_is_help=True,
    help="The models a coordinator chooses between: the embedded pocket models, or yours in a pool.toml.\n\n"
    "[dim]$[/] trinity pool init && trinity pool check --pool pool.toml",
)


app.command("health")(command("pool", ANALYSES["pool"].command))


@app.command()
def init(path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("pool.toml")) -> None:
    """Write a commented pool.toml to start from.

    [dim]$[/] trinity pool init my-pool.toml
    """
    from core.pool_file import pool_template

    write_new(path, pool_template())
    say(f"Wrote {path}. Edit it, then: trinity pool check --pool {path}")


@app.command("list")
def list_(pool: PoolOption = None, as_json: JsonOption = False) -> None:
    """List the models of a pool and what they cost. It asks no model and needs no key.

    [dim]$[/] trinity pool list --pool pool.toml
    """
    from core.pool_file import load_specs
    from ui.presentation.words import dollars
    from ui.runs import wiring

    name = wiring.settings(pool=pool).pool
    own = name != POCKET_POOL and not is_recorded(name)
    specs = load_specs(Path(name), wiring.data_folder()) if own else wiring.pool_specs(name)
    if as_json:
        print_json([{key: getattr(spec, key) for key in FIELDS} for spec in specs])
        return
    rows = [
        (
            f"{s.name} (judge)" if s.judge else s.name,
            s.provider,
            s.model,
            name if s.provider == "recorded" else s.local or s.base_url,
        )
        + (dollars(s.price_in), dollars(s.price_out), s.strength, "yes" if s.images else "no")
        + (key_state(s.api_key_env),)
        for s in specs
    ]
    prices = [">$ per 1M in", ">$ per 1M out"]
    columns = ["name", "provider", "model", "address", *prices, ">strength", "images", "key"]
    print_table(columns, rows)


FIELDS = (
    "name",
    "provider",
    "model",
    "base_url",
    "api_key_env",
    "max_tokens",
    "temperature",
    "price_in",
    "price_out",
    "strength",
    "images",
    "judge",
)


def key_state(variable: str) -> str:
    """Whether a key variable is set; never its value."""
    if not variable:
        return "none needed"
    return f"{variable} is set" if os.environ.get(variable) else f"{variable} is not set"


@app.command()
def check(
    pool: PoolOption = None,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles",
            help="Play each role once with each model, and ask the judge once, with whole and with streamed replies.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask every model one small question. Exit code 1 when one cannot be asked.

    [dim]$[/] trinity pool check --pool pool.toml

    [dim]$[/] trinity pool check --pool pool.toml --roles
    """
    from ui.runs import wiring

    if is_recorded(name := wiring.settings(pool=pool).pool):
        _check_table(name, as_json)
        return
    if roles:
        _check_roles(pool, as_json)
        return
    from core.pool.pool import check_pool, tokens_per_s
    from ui.presentation.words import dollars

    results: list[dict[str, object]] = []
    rows: list[tuple[str, ...]] = []
    models = wiring.resolve_pool(wiring.settings(pool=pool).pool)
    for name, reply in with_progress(check_pool(models), "models", len(models.specs)):
        failure = None if reply.error is None else reply.error.message
        say(f"{name}: {'answered' if failure is None else 'failed'}")
        results.append(
            {
                "name": name,
                "ok": failure is None,
                "latency_s": reply.latency_s,
                "tokens_per_s": tokens_per_s(reply),
                "error": failure,
            }
        )
        outcome, text = ("ok", reply.text[:60]) if failure is None else ("failed", failure)
        if noted := _noted(reply):
            results[-1]["note"] = noted
            say(f"{name}: {noted}")
        pace = tokens_per_s(reply)
        rows.append(
            (name, outcome, f"{reply.latency_s:.2f}", "" if pace is None else f"{pace:.1f}")
            + (dollars(reply.usage.cost_usd), text)
        )
    if as_json:
        print_json(results)
    else:
        tell()
        print_table(["model", "", ">seconds", ">tokens/s", ">cost", "reply"], rows)
    if not all(one["ok"] for one in results):
        raise typer.Exit(1)


def _check_table(pool: str, as_json: bool) -> None:
    """What each model of an outcome table can be asked: nobody is, as their replies are there."""
    from ui.runs import wiring

    specs = wiring.pool_specs(pool)
    if as_json:
        asked = [(spec, None if spec.tasks is None else len(spec.tasks)) for spec in specs]
        print_json(
            [{"name": spec.name, "ok": True, "tasks": n, "roles": list(spec.roles)} for spec, n in asked]
        )
        return
    say("Its models reply from an outcome table, so nobody is asked.")
    rows = [
        (spec.name, "all" if spec.tasks is None else len(spec.tasks), ", ".join(spec.roles)) for spec in specs
    ]
    print_table(["model", ">tasks with a reply", "roles that it can play"], rows)


def _noted(reply: Reply) -> str:
    """What is worth knowing of a reply that came; empty for nothing."""
    from core.finish import Finish

    notes = []
    if reply.finish is Finish.UNKNOWN:
        notes.append(f"it stopped for a reason that is not known ({reply.finish_reason})")
    if reply.usage.at_most_usd is not None:
        notes.append(
            "its server gives no counts of tokens, so each reply is charged as the most that it could cost"
        )
    return "; ".join(notes)


def _check_roles(pool: str | None, as_json: bool) -> None:
    """Whether each model's plan, answer and verdict can be read."""
    from core.play.role_check import call_count, check_roles
    from ui.presentation.words import dollars
    from ui.runs import wiring

    found: list[RoleCheck] = []
    models = wiring.resolve_pool(wiring.settings(pool=pool).pool)
    for one in with_progress(check_roles(models), "calls", call_count(models.specs)):
        found.append(one)
        how = "streamed" if one.streamed else "whole"
        say(f"{one.model} as {_part(one)}, {how}: {one.problem or 'ok'}")
    if as_json:
        print_json(
            [
                {
                    "model": one.model,
                    "role": "judge" if one.rates else one.role.value,
                    "streamed": one.streamed,
                    "ok": not one.problem,
                    "problem": one.problem or None,
                    "latency_s": one.reply.latency_s,
                    "cost_usd": one.reply.usage.cost_usd,
                }
                for one in found
            ]
        )
    else:
        tell()
        rows = [
            (
                one.model,
                _part(one),
                "streamed" if one.streamed else "whole",
                one.problem or "ok",
                f"{one.reply.latency_s:.2f}",
                dollars(one.reply.usage.cost_usd),
                one.reply.text[-60:] if one.problem and one.reply.error is None else "",
            )
            for one in found
        ]
        print_table(["model", "role", "reply", "", ">seconds", ">cost", "what it ended with"], rows)
    if any(one.problem for one in found):
        raise typer.Exit(1)


def _part(one: RoleCheck) -> str:
    from ui.presentation.words import role_word

    return "Judge" if one.rates else role_word(one.role)
