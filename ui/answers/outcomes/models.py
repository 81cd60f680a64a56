"""What each model of an outcome table knows by domain, whether the best is ahead by luck, and what its replies took."""

from __future__ import annotations

import numpy as np

from core.outcomes.matrix import Lead, leads
from ui.answers.asked import Asked
from ui.answers.blocks import (
    Answer,
    Block,
    Cell,
    Column,
    Estimate,
    Estimates,
    Grid,
    Line,
    Mark,
    Table,
)
from ui.answers.outcomes.subject import (
    BY_PARTS,
    counted,
    estimate,
    luck,
    luck_words,
    matrix,
    points,
    questions,
    strongest,
    viewed,
)
from ui.presentation.comparison import enumerated
from ui.presentation.theme import percent
from ui.presentation.words import several, share_words

#: So many domains have a column of their own, the largest ones.
MOST_DOMAINS = 16
ALL = "all"


def domains(asked: Asked) -> list[int]:
    """The domains that have a column, by name: the largest ones among the counted tasks, none where there is one."""
    of, tasks = matrix(asked), counted(asked)
    n = np.bincount(of.domain[tasks], minlength=len(of.domains))
    largest = np.argsort(-n, kind="stable")[:MOST_DOMAINS].tolist()
    return sorted(one for one in largest if n[one]) if len(of.domains) > 1 else []


def known(asked: Asked) -> Answer:
    """What each model knows, by domain."""
    of, tasks, order = matrix(asked), counted(asked), strongest(asked)
    columns = domains(asked)
    masks = [tasks, *(tasks & (of.domain == one) for one in columns)]
    names = [ALL, *(of.domains[one] for one in columns)]
    rates = [[of.accuracy(mask, model) for mask in masks] for model in order]
    best = [max((row[i].value or 0.0 for row in rates), default=0.0) for i in range(len(masks))]
    cells = [
        [
            Cell(
                rate.value,
                f"{rate.n:,} replies" if rate.k is None else f"{rate.k:,} of {rate.n:,} replies right",
                "*" * (bool(rate.n) and rate.value == best[i] and len(order) > 1),
                Mark(
                    to=questions(asked, model=of.models[model], domain=name if i else None),
                ),
                rate.ci95 if rate.n else None,
            )
            for i, (name, rate) in enumerate(zip(names, row, strict=True))
        ]
        for model, row in zip(order, rates, strict=True)
    ]
    notes: list[Block] = [
        "Percent right of the replies that are graded; a model without a reply to a question is not counted there. The "
        "best of a domain has a star. Intervals are Wilson's; of several samples those of a question fall together."
    ]
    if left := len(of.domains) - len(columns):
        notes += [f"{several(left, 'domain')} with fewer questions have no column."] * (len(columns) > 0)
    notes += [BY_PARTS] * of.by_parts
    names_of_models = [of.models[model] for model in order]
    grid = Grid(names_of_models, names, ("model", "domain"), cells, top=1.0)
    if len(names) > len(order):  # the longer side goes down: a phone is narrow
        turned = [list(column) for column in zip(*cells, strict=True)]
        grid = Grid(names, names_of_models, ("domain", "model"), turned, top=1.0)
    drawn: Block = grid
    if not columns:  # one domain: a grid would be a single column, in which a point cannot be seen
        drawn = Estimates(
            [
                Line(of.models[model], estimate(rate), Mark(to=questions(asked, model=of.models[model])))
                for model, (rate, *_) in zip(order, rates, strict=True)
            ],
            "answered right, 95 % interval",
            zoomed=True,
        )
    return Answer(
        "known",
        "What does each model know?",
        _known_words(asked, order),
        [drawn],
        notes,
        term="Outcome table",
    )


def _known_words(asked: Asked, order: list[int]) -> str:
    of, tasks = matrix(asked), counted(asked)
    rates = [of.accuracy(tasks, model) for model in order]
    if not rates or rates[0].value is None:
        return "No reply here is graded."
    said = [f"{of.models[order[0]]} knows most: {share_words(rates[0].value, rates[0].ci95)}"]
    if len(order) > 1 and rates[1].value is not None:
        said.append(f"then {of.models[order[1]]}, {share_words(rates[1].value, rates[1].ci95)}")
    domains = several(len(of.domains), "domain") if len(of.domains) > 1 else f"the domain {of.domains[0]}"
    n, whole = int(tasks.sum()), _answered_by_all(asked)
    by_all = f"{whole:,} of them" if whole < n else "all of them"
    whom = f"all {len(order)} models" if len(order) > 1 else of.models[order[0]]
    return f"{', '.join(said)}. {n:,} questions in {domains}, {by_all} answered by {whom}."


def _answered_by_all(asked: Asked) -> int:
    return int((matrix(asked).rows[counted(asked)] > 0).all(axis=1).sum())


def _everything(asked: Asked) -> str:
    """What all questions together are called: the domain, where there is one only."""
    of = matrix(asked)
    return ALL if len(of.domains) > 1 else of.domains[0]


def lead(asked: Asked) -> Answer | None:
    """Whether the best model of each domain is ahead by luck; None where nobody can be compared."""
    of, tasks = matrix(asked), counted(asked)
    found = leads(of, tasks)
    if len(of.domains) == 1:
        found = found[:1]  # the domain is all there is
    if not found:
        return None
    n_domains = len([one for one in found if one.domain])
    lines = [
        Line(
            f"{one.domain or _everything(asked)}: {of.models[one.best]}",
            Estimate(one.paired.difference, one.paired.ci95),
            Mark(to=questions(asked, "differ", **_two(asked, one))),
            plain=not one.holds,
        )
        for one in found
    ]
    table = Table.of(
        found,
        Column("domain", "Domain", get=lambda one: one.domain or _everything(asked)),
        Column(
            "lead",
            "Lead",
            "difference",
            lambda one: Estimate(one.paired.difference, one.paired.ci95),
            "In points, over the questions that both answered.",
        ),
        Column(
            "holds",
            "Luck?",
            get=lambda one: luck(one.holds),
            help=f"In a domain: when all {several(n_domains, 'comparison')} are allowed for (Holm)."
            if n_domains
            else "",
        ),
        Column("best", "Best", get=lambda one: of.models[one.best]),
        Column("p", "p", "p", lambda one: one.paired.p, "Of this comparison by itself"),
        Column("next", "Next", get=lambda one: of.models[one.rival]),
        Column(
            "accuracy",
            "Accuracy",
            "estimate",
            lambda one: _accuracy(asked, one, one.best),
            "Of the best, over the questions that both answered.",
        ),
        Column(
            "next_accuracy",
            "Of the next",
            "estimate",
            lambda one: _accuracy(asked, one, one.rival),
            "Its accuracy, over the questions that both answered.",
        ),
        Column("questions", "Questions", "count", lambda one: one.paired.n, "Those that both answered"),
    )
    test = (
        "Student's, paired, as this table grades by parts"
        if of.by_parts
        else "of sign flips by question"
        if viewed(asked).table.card.samples > 1
        else "McNemar's, exact"
    )
    return Answer(
        "lead",
        "Is the best model of a domain ahead by luck?" if n_domains else "Is the best model ahead by luck?",
        _lead_words(asked, found),
        [Estimates(lines, "lead in points", signed=True), table],
        [
            f"Differences are paired: both models answered the same questions, which are not all that each of them "
            f"answered. p is {test}. The first of a domain "
            "is compared with the next alone, two-sidedly: in the standard cases that keeps its level although who is "
            "first was read from the same questions (Hung and Fithian 2019). A lead in a domain counts as more than "
            "luck where it holds when all domains are allowed for "
            f"({several(n_domains, 'comparison')}, Holm's correction, 5 % for all together)."
        ],
    )


def _two(asked: Asked, one: Lead) -> dict[str, str | None]:
    of = matrix(asked)
    return {"model": of.models[one.best], "other": of.models[one.rival], "domain": one.domain}


def _accuracy(asked: Asked, one: Lead, model: int) -> Estimate:
    of, tasks = matrix(asked), counted(asked)
    if one.domain is not None:
        tasks = tasks & (of.domain == of.domains.index(one.domain))
    tasks = tasks & np.isfinite(of.share[:, [one.best, one.rival]]).all(axis=1)
    return estimate(of.accuracy(tasks, model))


def _lead_words(asked: Asked, found: list[Lead]) -> str:
    of = matrix(asked)
    first, by_domain = found[0], [one for one in found if one.domain]
    said = [
        f"On the {first.paired.n:,} questions that both answered {of.models[first.best]} has "
        f"{points(first.paired.difference, first.paired.ci95)} over {of.models[first.rival]} "
        f"({percent(first.paired.b)} against {percent(first.paired.a)}): "
        f"{luck_words(first.holds, first.paired.p)}."
    ]
    if by_domain:
        held, open_ = ([one for one in by_domain if one.holds is holds] for holds in (True, False))
        said.append(
            f"In {len(held)} of {len(by_domain)} domains the best model's lead is more than luck when all "
            f"{several(len(by_domain), 'comparison')} are allowed for"
            + (f": {_by_model(asked, held)}." if held else ".")
        )
        if open_:
            said.append(f"It may be luck in {enumerated([str(one.domain) for one in open_])}.")
        if by_itself := [str(one.domain) for one in open_ if one.paired.ci95[0] > 0]:
            said[-1] += (
                f" (The interval of {enumerated(by_itself)} leaves out 0, but an interval allows for one comparison "
                "alone.)"
            )
    return "\n".join(said)


def _by_model(asked: Asked, found: list[Lead]) -> str:
    of = matrix(asked)
    best = dict.fromkeys(one.best for one in found)
    own = {model: [str(one.domain) for one in found if one.best == model] for model in best}
    return "; ".join(f"{of.models[model]} in {enumerated(names)}" for model, names in own.items())


def taken(asked: Asked) -> Answer:
    """What a reply of each model took, and how many questions it answered."""
    of, tasks, order = matrix(asked), counted(asked), strongest(asked)
    n = int(tasks.sum())
    spent = {name: of.spent(name, tasks) for name in of.toll}

    def of_reply(name: str, model: int) -> float | None:
        value = float(spent[name][model])
        return value if np.isfinite(value) else None

    def rows(model: int) -> int:
        return int((of.rows[tasks, model] > 0).sum())

    def replies(model: int) -> int:
        return int(of.rows[tasks, model].sum())

    table = Table.of(
        order,
        Column("model", "Model", get=lambda model: of.models[model]),
        Column("accuracy", "Accuracy", "estimate", lambda model: estimate(of.accuracy(tasks, model))),
        Column(
            "coverage",
            "Coverage",
            "share",
            lambda model: rows(model) / n if n else None,
            "Of the questions, those with a reply",
        ),
        Column("replies", "Replies", "count", replies),
        Column(
            "unread",
            "No answer",
            "count",
            lambda model: replies(model) - int(of.read[tasks, model].sum()),
            "Replies in which none could be read",
        ),
        Column("errors", "Errors", "count", lambda model: int(of.failed[tasks, model].sum())),
        Column(
            "tokens", "Tokens", "number", lambda model: of_reply("tokens", model), "In and out, of a reply"
        ),
        Column("cost_usd", "Cost", "usd", lambda model: of_reply("cost", model), "In US dollars, of a reply"),
        Column("seconds", "Seconds", "number", lambda model: of_reply("seconds", model), "Of a reply", 1),
        Column("list", "Without one", "link", lambda model: _missing(asked, model, rows(model) < n)),
        key="models",
    )
    whole, least = _answered_by_all(asked), min(order, key=rows)
    who = f"All {len(order)} models" if len(order) > 1 else of.models[least]
    said = f"{who} answered {whole:,} of {n:,} questions ({percent(whole / n) if n else '–'})."
    if rows(least) < n and len(order) > 1:
        said += f" Least: {of.models[least]}, {rows(least):,}."
    unknown = [name for name, values in spent.items() if not np.isfinite(values).any()]
    if unknown:
        said += f" The table does not say: {', '.join(unknown)}."
    card = viewed(asked).table.card
    facts = [
        f"{card.known_as}: {card.rows:,} replies, kind {card.kind}"
        + f", source {card.source}" * bool(card.source)
        + f", licence {card.licence}" * bool(card.licence)
        + "."
    ]
    return Answer(
        "taken",
        "Who answered what, and what did a reply take?",
        said,
        [table],
        [*facts, *card.notes],
    )


def _missing(asked: Asked, model: int, some: bool) -> object:
    return questions(asked, "missing", model=matrix(asked).models[model]) if some else None
