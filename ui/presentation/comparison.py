"""What a comparison of policies says in words, for every door: verdicts, accuracies, intervals, and how often two
checkpoints agree on the same turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.analysis.comparison import (
    GAP,
    MODEL_ONLY,
    ROLE_ONLY,
    SAME,
    TEXT_CUT,
    Alignment,
    AlignmentRow,
    Comparison,
    TurnKey,
)
from core.episode import ROLE_ORDER, Flag
from storage.analysis.standings import Cell, Figures, TaskSet
from storage.rows.summaries import EpisodeSummary, TurnOutline
from ui.presentation.theme import ROLE_STYLES, one_line, signed_points
from ui.presentation.words import dollars, seconds

#: Below this many discordant tasks no test can reach p < 0.05: the page says so rather than show a bare p.
FEWEST_FLIPS = 6
#: Alignment takes time and room as the product of the lengths: beyond this many turns a side is cut.
MOST_ALIGNED = 300
#: More families of tasks than this are counted and not named.
MOST_FAMILIES = 12

#: A cell of the 2x2 table as its button says it, B being compared with A.
CELL_WORDS: dict[Cell, str] = {
    "both_right": "both right",
    "only_a": "lost by B",
    "only_b": "won by B",
    "both_wrong": "both wrong",
}
#: What the cost of an aligned row of two episodes means.
ALIGNMENT_WORDS = {
    SAME: "same model, same role",
    ROLE_ONLY: "same role, another model",
    MODEL_ONLY: "same model, another role",
    GAP: "a turn only one side has",
}


def moves(outlines: Sequence[TurnOutline], replies: Mapping[int, str]) -> list[TurnKey]:
    """An episode's turns with their replies, as an alignment compares them: MOST_ALIGNED at most."""
    return [
        TurnKey(one.model, one.role, replies.get(one.index, "")[:TEXT_CUT]) for one in outlines[:MOST_ALIGNED]
    ]


def mirror(found: Alignment) -> Alignment:
    """The same alignment with B as A."""
    return replace(found, rows=tuple(AlignmentRow(row.b, row.a, row.cost) for row in found.rows))


def verdict(compared: Comparison, a: str = "A", b: str = "B", among: int = 1) -> str:
    """Is B better, and is it luck? One sentence that a reader can quote. It is one of `among` comparisons."""
    lead = compared.difference.difference
    if compared.differing < FEWEST_FLIPS:
        return (
            f"Not enough to tell: they differ on {compared.differing} of {compared.n:,} tasks, and fewer than "
            f"{FEWEST_FLIPS} can never show more than luck."
        )
    if compared.p < corrected_threshold(among):
        yes = f"Yes, {b} is better than {a}" if lead > 0 else f"No, {a} is better than {b}"
        return f"{yes}, by {abs(100 * lead):.1f} points; chance alone is an unlikely explanation."
    return f"Not enough to tell: a difference of {signed_points(lead)} points over {compared.n:,} tasks may be luck."


def short_names(names: Sequence[str]) -> list[str]:
    """Names without what stands in their brackets, where that leaves them apart."""
    short = [name.split(" (")[0] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def corrected_threshold(comparisons: int) -> float:
    """The p below which a difference counts as more than luck among so many comparisons (Bonferroni)."""
    return 0.05 / max(1, comparisons)


def leading(best: str, rivals: Sequence[tuple[str, Comparison, int]]) -> str:
    """Whom the most accurate policy cannot be told apart from, in a sentence. Each of the others comes with its
    comparison, and 1 where the best is its B, -1 where it is its A."""
    leads = {name: (one, sign * one.difference.difference) for name, one, sign in rivals}
    tied = [name for name, (one, lead) in leads.items() if one.n and abs(lead) < 1e-9]
    behind = [name for name, (one, lead) in leads.items() if one.n and lead <= -1e-9]
    unclear = [
        f"{name} ({signed_points(lead)} points, p {p_words(one.p)})"
        for name, (one, lead) in leads.items()
        if one.n
        and lead >= 1e-9
        and (one.p >= corrected_threshold(len(rivals)) or one.differing < FEWEST_FLIPS)
    ]
    head = f"{best} is ahead" if not tied else f"{enumerated([best, *tied])} are ahead, equally far"
    if unclear:
        head += f"; against {enumerated(unclear)} the difference may be luck"
    elif len(tied) < len(rivals) and not behind:
        head += " of the others, by more than chance alone explains"
    parts = [head]
    if behind:
        parts.append(f"on the tasks that both played {enumerated(behind)} did better")
    if apart := [name for name, (one, _) in leads.items() if not one.n]:
        parts.append(f"no task is shared with {enumerated(apart)}")
    return "; ".join(parts) + "."


def accuracy_words(
    sets: Sequence[TaskSet], found: Sequence[Figures], names: Sequence[str], *, families: bool = True
) -> str:
    """What the accuracies of these policies are of, plain text: which tasks, how many, how often each was played."""
    return (
        f"Accuracy is the share of right answers on {tasks_words(sets, families=families)}, "
        f"{plays_words(found, names)}"
    )


def plays_words(found: Sequence[Figures], names: Sequence[str]) -> str:
    """How often the policies played each of their tasks: `each played once`, `each played once by gen 0 and 3 times by
    gen 120`."""
    players: dict[str, list[str]] = {}
    for one, name in zip(found, names, strict=True):
        if counts := [n for n, _, _ in one.by_task]:
            players.setdefault(_times(min(counts), max(counts)), []).append(name)
    if len(players) < 2:
        return f"each played {next(iter(players), 'never')}"
    return "each played " + enumerated(
        [f"{often} by {enumerated(whose)}" for often, whose in players.items()]
    )


def _times(fewest: int, most: int) -> str:
    if fewest == most:
        return "once" if most == 1 else f"{most} times"
    return f"{fewest} to {most} times"


def tasks_words(sets: Sequence[TaskSet], *, families: bool = True) -> str:
    """Which tasks and how many, plain text: `96 tasks: 48 of the test split (code 12, math 36), 48 of …`; without the
    `families`, `96 tasks: 48 of the test split, 48 of …`."""
    splits: dict[str, list[TaskSet]] = {}
    for one in sets:
        splits.setdefault(one.split, []).append(one)
    parts = []
    for split, found in splits.items():
        names = [f"{one_line(one.family, 30)} {one.n:,}" for one in found[:MOST_FAMILIES]]
        left = len(found) - MOST_FAMILIES
        more = [f"{left} more families"] if left > 0 else []
        n = sum(one.n for one in found)
        within = f" ({enumerated([*names, *more])})" if families else ""
        words = f"the {one_line(split, 30)} split{within}"
        parts.append(words if len(splits) == 1 else f"{n:,} of {words}")
    total = sum(one.n for one in sets)
    return f"{total:,} {'tasks' if total != 1 else 'task'} of {', '.join(parts)}" if parts else "no tasks"


def enumerated(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def p_words(p: float) -> str:
    """A p value: never a rounded-away 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_source(compared: Comparison) -> str:
    """Which test the p comes from."""
    return "exact McNemar test" if compared.exact else "sign-flip test by task"


def threshold_words(comparisons: int) -> str:
    """What each p is to be read against where there are several; empty for one comparison."""
    if comparisons < 2:
        return ""
    return (
        f"{comparisons} comparisons at once: with each more, luck alone makes one of them look real more often. "
        f"So read each p against {corrected_threshold(comparisons):.3f} (0.05 / {comparisons}) rather than 0.05."
    )


def points(ends: tuple[float, float]) -> str:
    """An interval of a difference in percentage points: `+3.1 to +20.8`."""
    return f"{signed_points(ends[0])} to {signed_points(ends[1])}"


def difference_words(difference: float, ends: tuple[float, float] | None) -> str:
    """A difference of shares with its interval, in points: `+12.0 (+3.1 to +20.8)`."""
    return f"{signed_points(difference)} ({points(ends)})" if ends else signed_points(difference)


def basis(compared: Comparison) -> str:
    """What the statistics rest on: tasks, episodes, flips."""
    start = f"Over {compared.n:,} shared tasks, "
    if not compared.repeats:
        return start + f"one episode each; {compared.a_only + compared.b_only:,} solved by only one."
    return (
        start
        + f"{compared.episodes_a:,} episodes of A and {compared.episodes_b:,} of B. Repeats of a task are drawn "
        "and swapped together, so they count as one task; the table counts a task as solved when more than half of "
        "its episodes are right."
    )


def signed(value: float, digits: int = 0) -> str:
    """A difference with its sign; what rounds to nothing has none."""
    words = f"{value:+,.{digits}f}"
    return words if words.strip("+-0.") else words[1:]


def totals(a: EpisodeSummary, b: EpisodeSummary) -> list[tuple[str, str, str, str]]:
    """What two episodes used, each line plain text: name, A, B, B minus A. No cost where both were free, and nothing
    that nobody counted of recorded replies."""
    used, also = a.tokens_in + a.tokens_out, b.tokens_in + b.tokens_out
    cost = [("Cost", dollars(a.cost_usd), dollars(b.cost_usd), "")] if a.cost_usd or b.cost_usd else []
    recorded = all(Flag.RECORDED.value in one.flags for one in (a, b))
    tokens = ("Tokens", f"{used:,}", f"{also:,}", signed(also - used))
    time = ("Time", seconds(a.latency_s), seconds(b.latency_s), f"{signed(b.latency_s - a.latency_s, 2)} s")
    return [
        ("Turns", str(a.turns), str(b.turns), signed(b.turns - a.turns)),
        *([tokens] if used or also or not recorded else []),
        *([time] if a.latency_s or b.latency_s or not recorded else []),
        *cost,
    ]


def slot_letter(slot: int) -> str:
    """A slot's letter, as in every turn strip: a, b, c and so on."""
    return chr(ord("a") + slot) if slot < 26 else f"{slot + 1}"


def pair_letter(pair: int) -> str:
    """A pick in short, as in every turn strip: `■a`."""
    slot, role = divmod(pair, len(ROLE_ORDER))
    return f"{ROLE_STYLES[ROLE_ORDER[role]].shape}{slot_letter(slot)}"


_SEEN = "learned from or was validated on"


def seen_words(policy: str, stored: str, seen: int, n: int, learned: str) -> str:
    """That a policy plays `seen` of `n` tasks that the checkpoint or planner `stored` learned from, as it did on
    the set `learned`; plain text that begins with the policy's name."""
    who = f"{policy} was made from {stored}, which" if policy.removeprefix("conductor:") != stored else policy
    these = "this very task" if n == 1 else f"{seen:,} of these {n:,} tasks"
    return f"{who} {_SEEN} {these}, so its accuracy here is no test of it. The test split of {learned} is new to it."


def tells_seen(sentence: str) -> bool:
    """Whether a run's note is one of `seen_words`."""
    return f" {_SEEN} " in sentence
