"""Who is compared with whom, as the address says it, and what a comparison says in words; no screen, no database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote

from core.comparison import Comparison
from core.errors import StoreError
from storage.pairs import Cell
from storage.sides import Played, Side, TaskSet, find_side
from ui.theme import one_line

#: More than this many policies in one picture can no longer be told apart.
MOST_SIDES = 8
#: Below this many discordant tasks no test can reach p < 0.05: the page says so rather than show a bare p.
FEWEST_FLIPS = 6

#: A cell of the 2x2 table as its button says it, B being compared with A.
CELL_WORDS: dict[Cell, str] = {
    "both_right": "both right",
    "only_a": "lost by B",
    "only_b": "won by B",
    "both_wrong": "both wrong",
}


@dataclass(frozen=True, slots=True)
class Line:
    """The policies of a comparison in their order, which of them is the baseline A, and which is looked at as B."""

    sides: tuple[Side, ...]
    a: int
    b: int

    @property
    def base(self) -> Side:
        """The baseline."""
        return self.sides[self.a]

    @property
    def chosen(self) -> Side:
        """The policy that is set against it."""
        return self.sides[self.b]

    @property
    def others(self) -> tuple[Side, ...]:
        """All but the baseline, in order."""
        return tuple(side for i, side in enumerate(self.sides) if i != self.a)

    def params(self, **changed: str | int | None) -> dict[str, str | int | None]:
        """The line as address parameters; those of before that said the same go."""
        return {
            "c": listed([side.token for side in self.sides]),
            "base": self.base.token,
            "b": self.chosen.token,
            "run_a": None,
            "run_b": None,
            "page": None,
            **changed,
        }

    def swapped(self) -> Line:
        """B as the baseline and the baseline as B."""
        return replace(self, a=self.b, b=self.a)

    def taking(self, name: Literal["base", "b"], token: str) -> dict[str, str | int | None]:
        """Another policy as A ("base") or as B, as address parameters: what is the other one's swaps the two, what is
        not among the policies joins them, and nothing else changes."""
        if token == (self.chosen if name == "base" else self.base).token:
            return self.swapped().params()
        tokens = [side.token for side in self.sides]
        return self.params() | {"c": listed(dict.fromkeys([*tokens, token])), name: token}

    def moved(self, by: int) -> Line:
        """B earlier (-1) or later (+1) in the order; the same at its ends."""
        to = self.b + by
        if not 0 <= to < len(self.sides):
            return self
        order = list(range(len(self.sides)))
        order[self.b], order[to] = order[to], order[self.b]
        return Line(tuple(self.sides[i] for i in order), order.index(self.a), to)


def listed(tokens: Iterable[str]) -> str:
    """Tokens as one address parameter; a comma within a name does not part them."""
    return ",".join(token.replace("%", "%25").replace(",", "%2C") for token in tokens)


def parted(parameter: str) -> list[str]:
    """Inverse of `listed`, each token once."""
    return list(dict.fromkeys(unquote(token) for token in parameter.split(",") if token))


def asked(query: Mapping[str, str]) -> tuple[list[str], str | None, str | None]:
    """The tokens that an address asks for, its baseline and its B; also as links had them when two were the most,
    each with a run of its own."""
    a, b = query.get("base"), query.get("b")
    if a and (run := query.get("run_a")):
        a = f"{run}/{a}"
    if b and (run := query.get("run_b")):
        b = f"{run}/{b}"
    tokens = parted(query.get("c", ""))
    tokens = [*([a] if a and a not in tokens else []), *tokens]
    tokens += [b] if b and b not in tokens else []
    return tokens, a or None, b or None


def line_of(
    query: Mapping[str, str], who: Sequence[Played], usual: Sequence[str]
) -> tuple[Line | None, list[str]]:
    """The line that an address asks for and the tokens that nobody here goes by, whose places the `usual` policies
    take; no line when fewer than two are left. An address that asks for nobody means all of `usual`, its first as A
    and its last as B."""
    tokens, a, b = asked(query)
    if not tokens:
        tokens, a, b = list(usual), usual[0], usual[-1]
    known: dict[str, Side] = {}
    gone: list[str] = []
    for token in tokens:
        try:
            known.setdefault(token, find_side(who, token))
        except StoreError:
            gone.append(token)
    if gone or not query.get("c"):
        for token in usual:
            if len(set(known.values())) < 2:
                known.setdefault(token, Side(token))
    sides = tuple(dict.fromkeys(known.values()))[:MOST_SIDES]
    if len(sides) < 2:
        return None, gone
    places = {token: sides.index(side) for token, side in known.items() if side in sides}
    said_a, said_b = places.get(a or ""), places.get(b or "")
    # Who is not said never takes the place of who is.
    base = said_a if said_a is not None else next(i for i in range(len(sides)) if i != said_b)
    left = [i for i in range(len(sides)) if i != base]
    return Line(sides, base, said_b if said_b in left else left[-1]), gone


def within(line: Line, who: Sequence[Played], run: str | None) -> Line:
    """The same policies, those that name no run of their own limited to `run` if they played there."""
    here = {one.policy for one in who if one.run == run}
    return replace(
        line,
        sides=tuple(
            replace(side, run=run) if side.run is None and side.policy in here else side
            for side in line.sides
        ),
    )


def shared_runs(line: Line, who: Sequence[Played]) -> list[str]:
    """Runs in which two or more of the policies played, newest first; first those in which all did."""
    free = {side.policy for side in line.sides if side.run is None}
    held: dict[str, int] = {}
    for one in who:
        if one.policy in free:
            held[one.run] = held.get(one.run, 0) + 1
    return sorted((run for run, n in held.items() if n > 1), key=lambda run: -held[run])


def verdict(compared: Comparison, a: str = "A", b: str = "B") -> str:
    """Is B better, and is it luck? One sentence that a reader can quote."""
    points = 100 * compared.difference.difference
    if compared.differing < FEWEST_FLIPS:
        return (
            f"Not enough to tell: they differ on {compared.differing} of {compared.n:,} tasks, and fewer than "
            f"{FEWEST_FLIPS} can never show more than luck."
        )
    if compared.p < 0.05:
        yes = f"Yes, {b} is better" if points > 0 else f"No, {a} is better"
        return f"{yes}, by {abs(points):.1f} points; chance alone is an unlikely explanation."
    return f"Not enough to tell: a difference of {points:+.1f} points over {compared.n:,} tasks may be luck."


def in_short(names: Sequence[str]) -> list[str]:
    """Names without what stands in their brackets, where that leaves them apart."""
    short = [name.split(" (")[0] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def most_p(comparisons: int) -> float:
    """Below which p a difference is more than luck when so many are looked at (Bonferroni)."""
    return 0.05 / max(1, comparisons)


def leading(best: str, rivals: Sequence[tuple[str, Comparison, int]]) -> str:
    """Whom the most accurate policy cannot be told from, in a sentence. Each of the others comes with its comparison,
    and 1 where the best is its B, -1 where it is its A."""
    leads = {name: (one, sign * one.difference.difference) for name, one, sign in rivals}
    tied = [name for name, (one, lead) in leads.items() if one.n and abs(lead) < 1e-9]
    behind = [name for name, (one, lead) in leads.items() if one.n and lead <= -1e-9]
    luck = [
        f"{name} ({100 * lead:+.1f} points, p {p_words(one.p)})"
        for name, (one, lead) in leads.items()
        if one.n and lead >= 1e-9 and (one.p >= most_p(len(rivals)) or one.differing < FEWEST_FLIPS)
    ]
    head = f"{best} is ahead" if not tied else f"{enumerated([best, *tied])} are ahead, equally far"
    if luck:
        head += f"; against {enumerated(luck)} the difference may be luck"
    elif len(tied) < len(rivals) and not behind:
        head += " of the others, by more than chance alone explains"
    told = [head]
    if behind:
        told.append(f"on the tasks that both played {enumerated(behind)} did better")
    if apart := [name for name, (one, _) in leads.items() if not one.n]:
        told.append(f"no task is shared with {enumerated(apart)}")
    return "; ".join(told) + "."


def tasks_words(sets: Sequence[TaskSet], most: int = 12) -> str:
    """Which tasks and how many, plain text: `96 tasks: 48 of the test split (code 12, math 36), 48 of …`."""
    splits: dict[str, list[TaskSet]] = {}
    for one in sets:
        splits.setdefault(one.split, []).append(one)
    told = []
    for split, found in splits.items():
        names = [f"{one_line(one.family, 30)} {one.n:,}" for one in found[:most]]
        more = [f"{len(found) - most} more families"] if len(found) > most else []
        n = sum(one.n for one in found)
        said = f"the {one_line(split, 30)} split ({enumerated([*names, *more])})"
        told.append(said if len(splits) == 1 else f"{n:,} of {said}")
    total = sum(one.n for one in sets)
    return f"{total:,} {'tasks' if total != 1 else 'task'} of {', '.join(told)}" if told else "no tasks"


def enumerated(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def p_words(p: float) -> str:
    """A p value: never a rounded-away 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_source(compared: Comparison) -> str:
    """Which test the p comes from."""
    return "exact McNemar test" if compared.exact else "sign-flip test by task"


def points(ends: tuple[float, float]) -> str:
    """An interval of a difference in percentage points: `+3.1 to +20.8`."""
    return f"{100 * ends[0]:+.1f} to {100 * ends[1]:+.1f}"


def basis(compared: Comparison) -> str:
    """What the statistics rest on: tasks, episodes, flips."""
    told = f"Over {compared.n:,} shared tasks, "
    if not compared.repeats:
        return told + f"one episode each; {compared.a_only + compared.b_only:,} solved by only one."
    return (
        told
        + f"{compared.episodes_a:,} episodes of A and {compared.episodes_b:,} of B. Repeats of a task are drawn "
        "and swapped together, so they count as one task; the table counts a task as solved when more than half of "
        "its episodes are right."
    )
