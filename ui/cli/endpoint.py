"""`trinity serve`: the pool as one model, for every client of OpenAI's API."""

from __future__ import annotations

import ipaddress
import logging
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError
from ui.cli.console import say, write_new
from ui.cli.options import EncoderOption, PoolOption, StoreOption, opened_store

if TYPE_CHECKING:
    from ui.endpoint.service import Service

PORT = 8080


def serve(
    pool: PoolOption = None,
    encoder: EncoderOption = None,
    store: StoreOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but this machine's own needs keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = PORT,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="Tiers. Else endpoint.toml in the data folder, else two of them."
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            metavar="USD", min=0, help="What all requests may cost together. Else the file's max_cost_usd."
        ),
    ] = None,
    write_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Write such a file of tiers, with comments, and stop."),
    ] = None,
    need_key: Annotated[
        bool, typer.Option("--need-key", help="Ask for a key on this machine's own address, too.")
    ] = False,
) -> None:
    """Serve the pool as one OpenAI-compatible model on http://127.0.0.1:8080/v1; stop it with Ctrl-C.

    A coordinator decides turn by turn who plans, works and checks. Every request is an episode: it appears in the
    app while it runs. The models are `trinity` (few turns with the cheaper half of the pool's models, or the weaker
    half by their strength in pool.toml), `trinity-ultra` (more turns with all of them), and `trinity@CHECKPOINT`.
    Unless a tier names who decides, the best validated checkpoint that fits the pool does.

    [dim]$[/] trinity serve --pool pool.toml --max-cost 5

    [dim]$[/] curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json'
      -d '{"model": "trinity", "messages": [{"role": "user", "content":
      "Ann has 7 shells. Ida has 5 more than Ann. How many shells do they have together?"}]}'
    """
    if write_config is not None:
        write_new(write_config, files("ui.endpoint").joinpath("example.toml").read_text("utf-8"))
        say(f"Wrote {write_config}. Edit it, then: trinity serve --config {write_config}")
        return
    from core.pool.costs import QUESTION_TOKENS
    from ui.cli.play import tell_encoder, tell_what_is_cut, tell_what_plays
    from ui.cli.serve import port_in_use
    from ui.endpoint.service import Service
    from ui.endpoint.tiers import read_endpoint
    from ui.presentation.words import dollars
    from ui.runs import wiring
    from ui.runs.settings import absolute_pool
    from ui.runs.spending import estimate, paid_models

    settings = wiring.settings(store=store, pool=pool, encoder=encoder)
    local = _is_local(host)
    if port_in_use(port, host):
        raise ConfigError(
            f"Port {port} on {host} is in use: stop that program or choose another with --port."
        )
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
            endpoint.model_copy(update={"inspector": inspector}),
            settings.encoder,
            max_cost if max_cost is not None else settings.max_cost_usd,
        )
        specs = service.pool.specs
        tell_what_plays(settings.pool, specs)
        service.warm_up()
        policies = (service.policy(tier, None) for tier in endpoint.tier)
        encoders = {id(one): one for policy in policies if (one := getattr(policy, "encoder", None))}
        for one in encoders.values():
            tell_encoder(one)
            tell_what_is_cut(opened, one, specs)
        for tier in endpoint.tier:
            most = estimate(specs, 1, tier.turns)
            sized = f"a request of {QUESTION_TOKENS:,} tokens"
            cost = f", at most {dollars(most.cost_usd)} for {sized}" if paid_models(specs) else ""
            among = service.offer.choices(tier)
            leaner = f" ({words})" if (words := service.offer.lean_words(tier)) and len(specs) > 1 else ""
            say(
                f"Model {tier.name}: {service.offer.policy_of(tier)}, up to {tier.turns} turns, with "
                f"{', '.join(among)}{leaner}{cost}."
            )
        _tell_validated(service)
        ceiling = service.max_cost_usd if service.max_cost_usd is not None else endpoint.max_cost_usd
        if paid_models(specs) and ceiling is None:
            say("Its models may cost money and no ceiling is set: set one with --max-cost USD.")
        shown = f"[{host}]" if ":" in host else host
        say(f"Serving http://{shown}:{port}/v1  (Ctrl-C stops it)")
        _listen(service, host, port, local=local, needs_key=need_key or not local)


def _tell_validated(service: Service) -> None:
    """Say of each coordinator that serves what is known of it, and warn where a single model is known to be better."""
    offer = service.offer
    named: dict[str, str] = {}  # who decides, and in which tier first
    for tier in service.endpoint.tier:
        named.setdefault(offer.policy_of(tier), tier.name)
    for policy, tier_name in named.items():
        if not service.store.checkpoints.has(policy):
            continue
        if (found := offer.validated(policy)) is None:
            say(
                f"Checkpoint {policy} was never validated: as none that fits the pool was, the newest plays."
                if not any(tier.policy == policy for tier in service.endpoint.tier)
                else f"Checkpoint {policy} was never validated."
            )
            continue
        say(f"Checkpoint {policy}: {found.words}.")
        if found.is_behind and found.single is not None:
            model = found.single[0].split(" ", 1)[0]
            say(
                f"Beware: it is behind the best single model. Evolve it for longer, or write policy = "
                f'"single:{model}" for tier {tier_name} into endpoint.toml (trinity serve --write-config).'
            )


def _listen(service: Service, host: str, port: int, *, local: bool, needs_key: bool) -> None:
    import uvicorn

    from ui.endpoint.api import endpoint_app

    app = endpoint_app(service, prefix="/v1", local=local, needs_key=needs_key)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
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
