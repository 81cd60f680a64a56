"""`trinity serve`: the pool as one model, for every client of OpenAI's API, or of Anthropic's."""

from __future__ import annotations

import gc
import ipaddress
import json
import logging
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError
from core.fields import validate_settings, values_of
from ui.cli.console import making_ready, say, write_new
from ui.cli.options import (
    DeviceOption,
    DtypeOption,
    EncoderOption,
    Given,
    PoolOption,
    StoreOption,
    opened_store,
    setting_lines,
    with_options,
)
from ui.endpoint.tiers import Endpoint, Tier, read_endpoint

if TYPE_CHECKING:
    from storage.store import Store
    from ui.endpoint.service import Service

PORT = 8080


@with_options(Endpoint)
def serve(
    context: typer.Context,
    pool: PoolOption = None,
    encoder: EncoderOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    store: StoreOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. One that others can reach needs keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = PORT,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="File of tiers. Else endpoint.toml in the data folder, else two tiers."
        ),
    ] = None,
    *,
    given: Given,
    write_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Write such a file of tiers, with comments, and stop."),
    ] = None,
    need_key: Annotated[
        bool, typer.Option("--need-key", help="Require a key on this machine's own address, too.")
    ] = False,
) -> None:
    """Serve the pool as one OpenAI-compatible model on http://127.0.0.1:8080/v1; stop it with Ctrl-C.

    A coordinator decides turn by turn who plans, works and checks. Every request is an episode: it appears in the
    app while it runs. The models are `trinity` (few turns with the cheaper half of the pool's models, or the weaker
    half by their strength in pool.toml), `trinity-ultra` (more turns with all of them), and `trinity@CHECKPOINT`.
    Where a tier names no policy, the best validated checkpoint that fits the pool decides, or the best single model
    answers where no coordinator is ahead of it; which it is, and how good it was, is said at the start.

    Clients of Anthropic's API ask /v1/messages. Images go to the models whose entries in pool.toml say images = true.

    [dim]$[/] trinity serve --pool pool.toml --max-cost 5

    [dim]$[/] curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json'
      -d '{"model": "trinity", "messages": [{"role": "user", "content":
      "Ann has 7 shells. Ida has 5 more than Ann. How many shells do they have together?"}]}'
    """
    if write_config is not None:
        write_new(write_config, example())
        say(f"Wrote {write_config}. Edit it, then: trinity serve --config {write_config}")
        return
    from ui.cli.ui import check_port
    from ui.endpoint.service import RECORDED_NOT_SERVED, Service
    from ui.runs import wiring
    from ui.runs.settings import absolute_pool, is_recorded

    chosen = validate_settings(Endpoint, given)["max_cost_usd"]
    settings = wiring.settings(store=store, pool=pool, encoder=encoder, device=device, dtype=dtype)
    if is_recorded(settings.pool):
        raise ConfigError(RECORDED_NOT_SERVED)
    local = _is_local(host)
    check_port(port, host)
    with opened_store(settings.store, mark_dead=True) as opened:
        if not local and not opened.endpoint.has_keys():
            raise ConfigError(
                f"Others could reach {host} and spend your money, so the endpoint needs a key there: make one "
                "with trinity keys add NAME, or serve on 127.0.0.1."
            )
        endpoint = read_endpoint(config, settings.data_folder)
        inspector = endpoint.inspector or (f"http://127.0.0.1:{settings.port}" if local else "")
        service = Service(
            opened,
            absolute_pool(settings.pool),
            replace(endpoint, inspector=inspector),
            settings.encoder,
            settings.max_cost_usd if chosen is None else chosen,
            computing=settings.computing,
        )
        _tell_offer(opened, service, endpoint, settings.pool)
        shown = f"[{host}]" if ":" in host else host
        say(f"Serving http://{shown}:{port}/v1  (Ctrl-C stops it)")
        _listen(service, host, port, local=local, needs_key=need_key or not local)


def _tell_offer(store: Store, service: Service, endpoint: Endpoint, pool: str) -> None:
    """Say which models are offered, by what they are decided and what they may cost."""
    from core.play.policies import SINGLE
    from core.pool.costs import QUESTION_TOKENS
    from ui.cli.play import show_preparations, tell_encoder, tell_what_is_cut, tell_what_plays
    from ui.presentation.words import dollars
    from ui.runs.play import decompositions
    from ui.runs.spending import estimate, paid_models

    specs = service.pool.specs
    tell_what_plays(pool, specs)
    with making_ready():
        service.warm_up()
        policies = [service.policy(tier, None) for tier in endpoint.tier]
    encoders = {id(one): one for policy in policies if (one := getattr(policy, "encoder", None))}
    for one in encoders.values():
        tell_encoder(one)
        tell_what_is_cut(store, one, specs)
    show_preparations(decompositions(policies))
    for tier in endpoint.tier:
        policy, turns = service.offer.policy_of(tier), service.offer.turns_of(tier)
        most = estimate(specs, 1, turns)
        sized = f"a request of {QUESTION_TOKENS:,} tokens"
        cost = f", at most {dollars(most.cost_usd)} for {sized}" if paid_models(specs) else ""
        say(
            f"Model {tier.name}: {policy}, asked once{cost}."
            if policy.startswith(SINGLE) and turns == 1
            else f"Model {tier.name}: {policy}, up to {turns} turns, with {service.offer.among_words(tier)}{cost}."
        )
    for words in filter(None, chain.from_iterable(service.offer.reports())):
        say(words)
    ceiling = service.max_cost_usd if service.max_cost_usd is not None else endpoint.max_cost_usd
    if paid_models(specs) and ceiling is None:
        say("Its models may cost money and no ceiling is set: set one with --max-cost USD.")


def example() -> str:
    """The file of tiers that is served without one: every key with a comment, of later tiers what tells them apart."""
    usual = Endpoint()
    first, *others = usual.tier
    lines = [
        "# The endpoint of trinity serve and of the app (there as endpoint.toml in the data folder).",
        "",
        *setting_lines(Endpoint, values_of(usual)),
        "# A [[tier]] table for each model that clients may ask for.",
        "",
        "[[tier]]",
        *setting_lines(Tier, values_of(first)),
    ]
    for tier in others:
        own = {key: value for key, value in values_of(tier).items() if value != getattr(Tier(""), key)}
        lines += ["[[tier]]", *(f"{key} = {json.dumps(value)}" for key, value in own.items()), ""]
    return "\n".join(lines)


def _listen(service: Service, host: str, port: int, *, local: bool, needs_key: bool) -> None:
    import uvicorn

    from ui.endpoint.api import endpoint_app

    app = endpoint_app(service, prefix="/v1", local=local, needs_key=needs_key)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
    gc.collect()
    gc.freeze()  # what is loaded stays: looking through it again and again would make requests wait
    uvicorn.run(
        app,
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
    )


def _is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
