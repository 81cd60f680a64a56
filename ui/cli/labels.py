"""`trinity label` and `trinity labels`: label an episode or a turn, and see who gave which labels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import ConfigError
from ui.cli.console import percent, print_json, print_table, say, tell
from ui.cli.options import JsonOption, StoreOption, opened_store

if TYPE_CHECKING:
    from storage.shelves.labels import Label
    from storage.store import Store


EpisodeArgument = Annotated[str, typer.Argument(help="The episode's id.")]


def label(
    episode: EpisodeArgument,
    labels: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Labels to add; NAME= withdraws one.")
    ],
    turn: Annotated[
        int | None, typer.Option(min=1, help="Label this turn (from 1), not the episode.")
    ] = None,
    quote: Annotated[str | None, typer.Option(help="Label only these words of the turn's reply.")] = None,
    note: Annotated[str, typer.Option(help="Why, in your words.")] = "",
    author: Annotated[
        str | None, typer.Option(help="Who gives the label. Else your login name.", show_default=False)
    ] = None,
    store: StoreOption = None,
) -> None:
    """Label an episode, one of its turns or words of its reply. Nothing is overwritten: your latest label of a name
    counts at its place.

    [dim]$[/] trinity label ep12ab quality=good cause="prompt bug" --turn 2 --note "asks for two answers"
    """
    from storage.shelves.labels import Place, find_span
    from ui.runs.wiring import login

    pairs = [one.partition("=") for one in labels]
    if wrong := [one for one, (_, sign, _) in zip(labels, pairs, strict=True) if not sign]:
        raise ConfigError(f"'{wrong[0]}' is not a label: write NAME=VALUE, such as quality=good.")
    if quote is not None and turn is None:
        raise ConfigError("--quote needs --turn: the words of which turn?")
    place = Place(episode, None if turn is None else turn - 1)
    with opened_store(store) as opened:
        if quote is not None and place.index is not None:
            reply = opened.episodes.text(episode, place.index).reply
            place = Place(episode, place.index, find_span(reply, quote))
        values = [(name, value) for name, _, value in pairs]
        opened.labels.add_all(place, values, author=author or login(), note=note)
    where = f"episode {episode}" if turn is None else f"turn {turn} of episode {episode}"
    say(f"Labelled {where}: {', '.join(labels)}.")


def labels(
    episode: Annotated[
        str | None, typer.Argument(help="This episode's labels and their history.", show_default=False)
    ] = None,
    agreement: Annotated[
        str | None, typer.Option(metavar="NAME", help="How far reviewers agree on this label.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="Agreement over this run's episodes only.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the labels in use, the labels of one episode, or how far reviewers agree.

    [dim]$[/] trinity labels --agreement quality
    """
    if episode and agreement:
        raise ConfigError("Ask for one episode's labels or for agreement, not for both.")
    with opened_store(store) as opened:
        if agreement:
            _agreement(opened, agreement, run, as_json)
        elif episode:
            _history(opened, episode, as_json)
        else:
            _in_use(opened, as_json)


def _in_use(store: Store, as_json: bool) -> None:
    used, authors = store.labels.in_use(), store.labels.authors()
    if as_json:
        print_json({"names": list(used), "authors": list(authors)})
        return
    print_table(
        ["name", "values", ">episodes"],
        [(one.name, ", ".join(f"{v.value} {v.n}" for v in one.values), one.episodes) for one in used],
    )
    tell()
    print_table(["author", ">episodes"], [(one.value, one.n) for one in authors])


def _history(store: Store, episode: str, as_json: bool) -> None:
    store.episodes.summary(episode)
    in_force, history = store.labels.of(episode), store.labels.history(episode)
    if as_json:
        print_json({"labels": [_plain(one) for one in in_force], "history": [_plain(one) for one in history]})
        return
    print_table(
        ["when", "author", "turn", "label", "counts", "note"],
        [
            (
                time.strftime("%Y-%m-%d %H:%M", time.localtime(one.at)),
                one.author,
                "" if one.place.index is None else one.place.index + 1,
                f"{one.name}={one.value}",
                "yes" if one in in_force else "",
                one.note[:80],
            )
            for one in history
        ],
    )


def _plain(one: Label) -> dict[str, Any]:
    """A label for programs; its turn counts from 1, as `--turn` does."""
    place = one.place
    return {
        "episode": place.episode_id,
        "turn": None if place.index is None else place.index + 1,
        "span": place.span,
        **{field: getattr(one, field) for field in ("name", "value", "note", "author", "at", "quote")},
    }


def _agreement(store: Store, name: str, run: str | None, as_json: bool) -> None:
    from storage.filters.episode_filter import EpisodeFilter

    found = store.reviews.agreement(name, EpisodeFilter(run=run))
    if as_json:
        print_json(found)
        return
    print_table(
        ["reviewers", "same value", "kappa", "95 % interval", ">items"],
        [
            (
                f"{one.a}, {one.b}",
                percent(one.kappa.observed),
                _number(one.kappa.kappa),
                f"{_number(one.kappa.low)} to {_number(one.kappa.high)}",
                one.kappa.n,
            )
            for one in found.pairs
        ],
    )
    if found.alpha is not None and len(found.pairs) > 1:
        tell(f"All reviewers: Krippendorff's alpha {found.alpha:.2f} over {found.items} items")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
