"""`trinity pool`: begin a pool.toml, see what is in a pool, try every model once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.console import JsonOption, PoolOption, print_json, print_table, say, tell
from ui.presentation.words import dollars

app = typer.Typer(
    no_args_is_help=True,
    help="The models a coordinator chooses between: the embedded pocket models, or yours in a pool.toml.\n\n"
    "[dim]$[/] trinity pool init && trinity pool check --pool pool.toml",
)


@app.command()
def init(path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("pool.toml")) -> None:
    """Write a commented pool.toml to begin with.

    [dim]$[/] trinity pool init my-pool.toml
    """
    from core.errors import ConfigError
    from core.pool_file import pool_template

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(pool_template())
    except FileExistsError:
        raise ConfigError(f"{path} exists already: name another file, or move it away.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
    say(f"Wrote {path}. Edit it, then: trinity pool check --pool {path}")


@app.command("list")
def list_(pool: PoolOption = None, as_json: JsonOption = False) -> None:
    """List the models of a pool and what they cost. No model is asked, no key is needed.

    [dim]$[/] trinity pool list --pool pool.toml
    """
    from core.settings import POCKET_POOL
    from ui.runs import wiring

    name = wiring.settings(pool=pool).pool
    if name == POCKET_POOL:
        from core.pocket import MODELS
        from core.pocket.specs import pocket_spec

        specs = tuple(pocket_spec(model) for model in MODELS)
    else:
        from core.pool_file import load_specs

        specs = load_specs(Path(name))
    if as_json:
        print_json([{key: getattr(spec, key) for key in FIELDS} for spec in specs])
        return
    print_table(
        ["name", "provider", "model", "address", ">$ per 1M in", ">$ per 1M out", "key"],
        [
            (
                s.name,
                s.provider,
                s.model,
                s.base_url,
                dollars(s.price_in),
                dollars(s.price_out),
                key_state(s.api_key_env),
            )
            for s in specs
        ],
    )


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
)


def key_state(variable: str) -> str:
    """Whether a key variable is set; never its value."""
    if not variable:
        return "none needed"
    return f"{variable} is set" if os.environ.get(variable) else f"{variable} is not set"


@app.command()
def check(pool: PoolOption = None, as_json: JsonOption = False) -> None:
    """Ask every model one small question, to see that each can be asked at all. Exit code 1 when one cannot.

    [dim]$[/] trinity pool check --pool pool.toml
    """
    from core.pool.check import check_pool
    from ui.runs import wiring

    answered = []
    for name, reply in check_pool(wiring.resolve_pool(wiring.settings(pool=pool).pool)):
        answered.append((name, reply))
        say(f"{name}: {'answered' if reply.error is None else 'failed'}")
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "ok": r.error is None,
                    "latency_s": r.latency_s,
                    "error": r.error and r.error.message,
                }
                for name, r in answered
            ]
        )
    else:
        tell()
        print_table(
            ["model", "", ">seconds", ">cost", "reply"],
            [
                (
                    name,
                    "ok" if r.error is None else "failed",
                    f"{r.latency_s:.2f}",
                    dollars(r.usage.cost_usd),
                    r.text[:60] if r.error is None else r.error.message,
                )
                for name, r in answered
            ],
        )
    if any(reply.error for _, reply in answered):
        raise typer.Exit(1)
