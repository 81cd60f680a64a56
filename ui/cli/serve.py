"""`trinity serve`: the pool as one model, for every client of OpenAI's API, or of Anthropic's."""

from __future__ import annotations

import ipaddress
import json
import logging
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError
from core.fields import validate_settings, values_of
from core.processes import set_aside
from core.settings import LOCAL_ENGINE
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
    from core.settings import Computing
    from storage.store import Store
    from ui.endpoint.ledger import Books
    from ui.endpoint.processes import SharedBooks
    from ui.endpoint.service import Service

PORT = 8080
#: A thread that has something to do waits so long for one that computes, in seconds: each request passes three of them.
SWITCH_S = 0.0005


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
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Processes that share the port, for a machine with so many cores to spare. Limits of cost, requests "
            "and tokens hold for all of them together, most_requests is shared out; a model's concurrency, its "
            "provider's rate limits and the rest of one that failed are kept by each on its own. Each loads its own "
            "coordinator and encoder, and takes their memory.",
        ),
    ] = 1,
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
    from ui.endpoint.service import RECORDED_NOT_SERVED
    from ui.runs import wiring
    from ui.runs.settings import absolute_pool, is_recorded

    chosen = validate_settings(Endpoint, given)["max_cost_usd"]
    options = {"store": store, "pool": pool, "encoder": encoder, "device": device, "dtype": dtype}
    settings = wiring.settings(**options, engine=given.get("engine"))
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
        stated = (chosen, settings.max_cost_usd, endpoint.max_cost_usd)
        ceiling = next((one for one in stated if one is not None), None)
        engine = (
            endpoint.engine if settings.engine == LOCAL_ENGINE and "engine" not in given else settings.engine
        )
        plan = _Plan(
            opened.address,
            settings.pool,
            absolute_pool(settings.pool),
            replace(endpoint, inspector=inspector, max_cost_usd=ceiling, engine=engine),
            settings.encoder,
            settings.computing,
            host,
            port,
            local,
            need_key or not local,
        )
        if processes == 1:
            service = plan.service(opened)
            _tell_offer(opened, service, plan.endpoint, plan.pool)
            plan.say_where()
            plan.listen(service)
        else:
            _serve_by(processes, plan, opened)


@dataclass(frozen=True)
class _Plan:
    """What is served, and where: all that a process needs to know of it."""

    store: str
    pool: str
    absolute_pool: str
    endpoint: Endpoint
    encoder: str | None
    computing: Computing
    host: str
    port: int
    local: bool
    needs_key: bool

    def service(self, store: Store, books: Books | None = None) -> Service:
        from ui.endpoint.service import Service

        return Service(
            store,
            self.absolute_pool,
            self.endpoint,
            self.encoder,
            computing=self.computing,
            books=books,
        )

    def say_where(self, processes: int = 1) -> None:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        by = f" by {processes} processes" if processes > 1 else ""
        say(f"Serving http://{shown}:{self.port}/v1{by}  (Ctrl-C stops it)")

    def listen(self, service: Service, listener: socket.socket | None = None) -> None:
        """Serve until a signal, on a socket of its own or on the one that is given."""
        import uvicorn

        from ui.endpoint.api import endpoint_app

        app = endpoint_app(service, prefix="/v1", local=self.local, needs_key=self.needs_key)
        logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
        sys.setswitchinterval(SWITCH_S)
        set_aside()
        config = uvicorn.Config(
            app,
            host=self.host,
            port=self.port,
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        with suppress(KeyboardInterrupt):  # raised again once the server has stopped in order
            uvicorn.Server(config).run(None if listener is None else [listener])


@dataclass(frozen=True)
class _Share:
    """What one of several processes does (`ui.endpoint.processes.Serve`)."""

    plan: _Plan

    def __call__(self, listener: socket.socket, books: SharedBooks, *, slot: int, first: bool) -> None:
        plan = self.plan
        if slot:  # one of them removes what is kept no longer
            plan = replace(
                plan, endpoint=replace(plan.endpoint, keep_texts_days=None, keep_episodes_days=None)
            )
        with opened_store(plan.store) as opened:
            service = plan.service(opened, books)
            if first:
                _tell_offer(opened, service, plan.endpoint, plan.pool)
            else:
                service.warm_up()
            books.ready()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # raised again once the server has stopped in order
            plan.listen(service, listener)


def _serve_by(processes: int, plan: _Plan, store: Store) -> None:
    """Serve by several processes, over whose limits this one keeps the books."""
    import ui.endpoint.api  # noqa: F401 - which all of them share
    from ui.endpoint.ledger import OwnBooks
    from ui.endpoint.processes import Processes, bound_sockets

    endpoint = plan.endpoint
    books = OwnBooks.of(store, plan.absolute_pool, endpoint.max_cost_usd, endpoint.quotas)
    each = replace(endpoint, most_requests=-(-endpoint.most_requests // processes))
    listeners = bound_sockets(plan.host, plan.port, processes)
    share = _Share(replace(plan, endpoint=each))
    if not Processes(share, listeners, books, lambda: plan.say_where(processes)).run():
        raise typer.Exit(1)


def _tell_offer(store: Store, service: Service, endpoint: Endpoint, pool: str) -> None:
    """Say which models are offered, by what they are decided and what they may cost."""
    from core.play.policies import SINGLE
    from core.pool.costs import QUESTION_TOKENS
    from ui.cli.play import show_preparations, tell_encoder, tell_what_is_cut, tell_what_plays
    from ui.presentation.runs import engine_state_words
    from ui.presentation.words import dollars
    from ui.runs.play import decompositions
    from ui.runs.spending import estimate, paid_models

    specs = service.pool.specs
    tell_what_plays(pool, specs)
    if state := service.engine_state():
        say(f"Engine: {engine_state_words(endpoint.engine, state)}.")
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
    if paid_models(specs) and endpoint.max_cost_usd is None:
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


def _is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
