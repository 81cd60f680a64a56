"""`trinity keys`: who may ask the endpoint, and within which limits."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.console import print_json, print_table, say
from ui.cli.options import JsonOption, StoreOption, opened_store

app = typer.Typer(
    no_args_is_help=True,
    help="API keys of the endpoint. On this machine's own address requests need none; on any other, every request "
    "needs one.\n\n[dim]$[/] trinity keys add laptop --max-cost 5",
)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    max_cost: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="What all its requests may cost together.")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, max=100, help="Most turns per request.")] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, max=3600, help="How long a request may take.")
    ] = None,
    day_usd: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="What a day (UTC) may cost.")
    ] = None,
    day_requests: Annotated[int | None, typer.Option(min=0, help="Requests of a day.")] = None,
    day_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens after which no request of the day is taken.")
    ] = None,
    month_usd: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="What a month may cost.")
    ] = None,
    month_requests: Annotated[int | None, typer.Option(min=0, help="Requests of a month.")] = None,
    month_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens after which no request of the month is taken.")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="A model or a provider's host that its requests never use; repeatable."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it once: the store keeps only its digest.

    [dim]$[/] trinity keys add laptop --max-cost 5 --leave-out api.example.com
    """
    from storage.shelves.endpoint import Limits, Quota

    with opened_store(store) as opened:
        quotas = Quota(day_usd, day_requests, day_tokens), Quota(month_usd, month_requests, month_tokens)
        limits = Limits(max_cost, turns, deadline, tuple(leave_out or ()), *quotas)
        key, text = opened.endpoint.add_key(name, limits)
    if as_json:
        print_json({"id": key.id, "name": key.name, "key": text})
        return
    say("Keep this key: it is shown this once and cannot be read again.")
    typer.echo(text)


@app.command("list")
def list_(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the keys with their limits and use, never the keys themselves.

    [dim]$[/] trinity keys list
    """
    from ui.endpoint.ledger import quota_words
    from ui.presentation.words import ago, dollars

    with opened_store(store) as opened:
        keys, now = opened.endpoint.keys(), opened.now()
    if as_json:
        print_json(list(keys))
        return
    rows = [
        (
            one.id,
            one.name,
            "revoked" if one.revoked else "valid",
            one.requests,
            dollars(one.charged_usd),
            "" if one.limits.max_cost_usd is None else dollars(one.limits.max_cost_usd),
            one.limits.max_turns or "",
            "" if one.limits.deadline_s is None else f"{one.limits.deadline_s:g} s",
            quota_words(one.limits),
            ", ".join(one.limits.leave_out),
            ago(one.last_used, now) if one.last_used else "never",
        )
        for one in keys
    ]
    columns = [
        "id",
        "name",
        "",
        ">requests",
        ">cost",
        ">ceiling",
        ">turns",
        ">deadline",
        "by day and month",
        "does without",
        "last used",
    ]
    print_table(columns, rows)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The id or the name of the key.")], store: StoreOption = None
) -> None:
    """Refuse a key from now on; its episodes stay.

    [dim]$[/] trinity keys revoke laptop
    """

    with opened_store(store) as opened:
        found = opened.endpoint.revoke(key)
    say(f"Key {found.id} ({found.name}) is refused from now on.")
