"""Values as words: times, sizes, costs, names of policies, runs and roles."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from core.conduct.planners import CONDUCTOR
from core.episode import Flag, Judgement, Protocol, Role, Verdict
from core.finish import EDITED
from core.play.judging import PASS_MARK
from core.play.policies import CANDIDATE
from storage.analysis.routing import ModelInRole
from storage.analysis.standings import Setting
from storage.filters.listing import MIXED
from storage.rows.summaries import CheckpointSummary, EpisodeSummary, TurnOutline, TurnText
from storage.shelves.labels import NOTE, Label, Place
from storage.store import Store
from ui.presentation.theme import REVISE, ROLE_STYLES, label, one_line, percent, plain, strip_legend

if TYPE_CHECKING:
    from core.analysis.separability import Score

#: The name of an evolution beside a generation is cut to so many characters.
_RUN_NAME = 24
#: Kinds of the heads that were taught before their evolution: by labels, by what another policy does.
_LABELLED, _CLONED = "labels", "cloned"
#: What the policies that need no checkpoint do, in a few words.
POLICY_WORDS = {
    "random": "random model and role",
    "random-model": "random model, fixed roles",
    "round-robin": "all models in turn",
}

_SHAPES = {look.letter: look.shape for look in ROLE_STYLES.values()}
#: How a turn begins in a stored strip: its role's letter.
_TURN_OF_STRIP = re.compile(r"(?<!\S)([TWV])·")

PROTOCOL_WORDS = {Protocol.PAPER: "the paper's", Protocol.RELEASED: "the authors' released code's"}


def rules_words(protocol: Protocol) -> str:
    """Whose rules an episode was played by: `the paper's rules`."""
    return f"{PROTOCOL_WORDS[protocol]} rules"


#: Policy -> the generation of the checkpoint, or the iteration of the planner, that it is; in a store with more than
#: one evolution, or training, with the name of its own: `60 of mine`; of a head that was taught before its evolution,
#: with its teacher: `0 (taught by probe)`.
Generations = Mapping[str, int | str | None]


def policy_name(policy: str, generation: int | str | None = None) -> str:
    """A policy as a reader knows it, plain text: `gen 30`, `jack alone`, and `start` for generation 0, in which nothing
    is evolved yet. `generation` is a checkpoint's; of a planner, the iteration of its training."""
    if policy == MIXED:
        return "decided by hand, or by two coordinators"
    if policy.startswith(CANDIDATE) and policy.count("/") >= 2:
        run, generation_of, number = policy.removeprefix(CANDIDATE).rsplit("/", 2)
        return one_line(f"candidate {number} of gen {generation_of} ({run})", 60)
    if policy.startswith(CONDUCTOR):
        return one_line(_planner_name(policy.removeprefix(CONDUCTOR), generation), 80)
    if generation is not None:
        number, space, whose = str(generation).partition(" ")
        return f"{'start' if number == '0' else f'gen {number}'}{space}{whose}"
    if policy.startswith("single:"):
        return f"{one_line(policy.removeprefix('single:'), 40)} alone"
    return POLICY_WORDS.get(policy, one_line(policy, 40))


def decider_words(one: EpisodeSummary, names: Generations) -> str:
    """Who decided an episode, plain text: its policy's name, and that it was not it alone. What `names` does not know,
    such as a checkpoint that was deleted, is named by what the episode says."""
    return policy_name(one.policy, names.get(one.policy, one.generation)) + not_alone(one.flags)


def not_alone(flags: Collection[str]) -> str:
    """What is added to the name of a policy by the flags of a play of which it did not decide all turns; empty where
    it did."""
    others = ["another coordinator"] * ("swapped" in flags) + ["a person"] * ("override" in flags)
    return f", with {' and '.join(others)}" if others else ""


def _planner_name(planner: str, iteration: int | str | None) -> str:
    """What writes workflows: `Conductor, iteration 60`, `workflow chain of plato, sage`, `random workflows`."""
    kind, _, rest = planner.partition(":")
    if planner == "random":
        return "random workflows"
    if kind == "fixed":
        name, _, team = rest.partition(":")
        return f"workflow {name}" + (f" of {team.replace('+', ', ')}" if team else "")
    if kind == "prompted":
        return f"workflows by {rest}"
    if kind == "same-model":
        model, _, inner = rest.partition(":")
        trained = ":" not in inner and inner not in ("", "random")
        # Of a frozen workflow its name alone: the model takes the place of its team.
        whose = _planner_name(":".join((inner or "random").split(":")[:2]), None)
        return f"{f'workflows of {whose}' if trained else whose} with {model} alone"
    return f"Conductor ({planner})" if iteration is None else f"Conductor, iteration {iteration}"


def right_words(outcomes: Sequence[bool | None]) -> str:
    """How many episodes that are over ended right: `2 right`, of those that somebody could judge."""
    judged = [one for one in outcomes if one is not None]
    if outcomes and not judged:
        return "not judged"
    return (
        f"{sum(judged)} right"
        if len(judged) == len(outcomes)
        else f"{sum(judged)} of {len(judged)} judged right"
    )


def share_words(share: float, ends: tuple[float, float]) -> str:
    """A share with its interval: `44.0 % (39 to 49)`, one that is narrow with decimals: `99.8 % (99.6 to 99.9)`."""
    places = 0 if ends[1] - ends[0] >= 0.02 else 1
    return f"{percent(share)} ({100 * ends[0]:.{places}f} to {100 * ends[1]:.{places}f})"


def score_words(score: Score) -> str:
    """A mean with its deviation: `71.3 ± 1.6 %`; without one `100.0 %`."""
    deviation = "" if score.std is None else f" ± {100 * score.std:.1f}"
    return f"{100 * score.mean:.1f}{deviation} %"


def role_word(role: Role) -> str:
    """Shape and word, as every axis names a role."""
    style = ROLE_STYLES[role]
    return f"{style.shape} {style.word}"


def label_words(one: Label | tuple[str, str]) -> str:
    """A label in a few words, plain text: `quality: good`; `note` for a note without a value."""
    name, value = (one.name, one.value) if isinstance(one, Label) else one
    return "note" if name == NOTE else f"{name}: {value}"


def place_words(place: Place) -> str:
    """`episode`, `turn 3`, `words of turn 3`."""
    if place.index is None:
        return "episode"
    return f"{'words of ' if place.span else ''}turn {place.index + 1}"


#: Longer texts are cut to this many characters until a reader asks for all of them, and to HARD_CUT even then.
CUT, HARD_CUT = 6_000, 400_000
#: As many lines at most: a browser lays each out for itself, and takes 16 s for 130,000 of them.
LINES, HARD_LINES = 300, 3_000


def turns_words(turns: Sequence[int]) -> str:
    """Turns (0-based) as readers count them: `turn 2`, `turns 1, 2 and 4`; `no turn`."""
    named = [str(turn + 1) for turn in turns]
    if len(named) < 2:
        return f"turn {named[0]}" if named else "no turn"
    return f"turns {', '.join(named[:-1])} and {named[-1]}"


def wrong_accepts_words(verdicts: int, episodes: int, ended: int) -> str:
    """How many verdicts accepted a wrong answer, in how many episodes, and how many of these they ended, plain text;
    empty for none."""
    if not verdicts:
        return ""
    many = f"{several(verdicts, 'verdict')} accepted a wrong answer, in {several(episodes, 'episode')}."
    if ended == episodes:
        return f"{many} {'It' if ended == 1 else 'Each'} ended with that verdict: a false accept."
    rest = episodes - ended
    others = "one" if rest == 1 else f"{rest:,}"
    return (
        f"{many} {ended:,} of these ended with that verdict (false accepts); the other {others} "
        f"{'is' if rest == 1 else 'are'} of workflows, where an ACCEPT ends nothing."
    )


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`, `1,001st`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def seconds(value: float) -> str:
    """A duration: `0.04 s`, `3.1 s`, `2 min 5 s`."""
    if value >= 60:
        return f"{int(value // 60)} min {value % 60:.0f} s"
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"


def missing_reply_words(text: TurnText) -> str:
    """Why there is no reply to read."""
    removed = text.reply_removed
    if removed:
        return f"What was said was removed on {plain(removed, 20)}."
    return "The model has only been thinking." if text.reply.strip() else "The model said nothing."


#: Of a part of two texts that are compared: in both, only in the first, only in the second.
Side = Literal["both", "removed", "added"]


def word_diff(before: str, after: str) -> list[tuple[Side, str]]:
    """What changed word by word, in order; each text up to CUT characters."""
    old, new = (re.findall(r"\s+|\S+", side[:CUT]) for side in (before, after))
    parts: list[tuple[Side, str]] = []
    for kind, a0, a1, b0, b1 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(("both", "".join(old[a0:a1])))
            continue
        if a1 > a0:
            parts.append(("removed", "".join(old[a0:a1])))
        if b1 > b0:
            parts.append(("added", "".join(new[b0:b1])))
    return parts


#: How each side of a comparison is drawn, around its words on one line: in colour, and by signs for who sees none.
_DRAWN: dict[Side, tuple[str, str]] = {
    "both": ("", ""),
    "removed": (":red-background[−\u202f~~", "~~]"),
    "added": (":green-background[+\u202f**", "**]"),
}


def diff_markdown(parts: Sequence[tuple[Side, str]]) -> str:
    """A comparison as Streamlit markdown, every word of it escaped: what only the first has struck out in red after a
    minus, what only the second has bold in green after a plus. Line ends and indents stay."""
    drawn: list[str] = []
    for side, text in parts:
        before, after = _DRAWN[side]
        for line in re.split(r"(\r\n|\n|\r)", text):
            words = line.strip()
            if line.strip("\r\n") == "" and line:
                drawn.append("  \n")
            elif not words:
                drawn.append("\u00a0" * len(line) if side == "both" and len(line) > 1 else line)
            else:
                start = len(line) - len(line.lstrip())
                lead = "\u00a0" * start if start > 1 else line[:start]
                tail = line[start + len(words) :]
                drawn.append(f"{lead}{before}{label(words, CUT)}{after}{tail}")
    return "".join(drawn)


def size_words(size_bytes: int | None) -> str:
    """`1.2 MB`, `340 GB`; a dash when it is not known."""
    if size_bytes is None:
        return "–"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:,.1f} {unit}"
    return f"{size_bytes:,} bytes"


def several(n: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 fork`, `2 forks`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def pair_words(role: Role, model: str) -> str:
    """A role and a model in words, plain text: `Worker on atlas`."""
    return f"{ROLE_STYLES[role].word} on {model}"


def move_key(move: ModelInRole) -> str:
    """A move as addresses name it: `worker:atlas`."""
    return f"{move.role.value}:{move.model}"


def parse_move(key: str) -> ModelInRole | None:
    """Inverse of `move_key`; None for anything else."""
    role, colon, model = key.partition(":")
    return ModelInRole(model, Role(role)) if colon and model and role in set(Role) else None


def move_words(move: ModelInRole | None, end: str = "the end") -> str:
    """A move in words, plain text: `Worker on atlas`; `end` for None."""
    return end if move is None else pair_words(move.role, move.model)


def dollars(cost: float | None) -> str:
    """A cost in USD, or `no price`."""
    return "no price" if cost is None else f"${cost:.4f}" if 0 < cost < 1 else f"${cost:,.2f}"


def left_words(seconds: float | None) -> str:
    """The time that something still takes, as the end of a line: `, about 3 min left`; empty where it is unknown."""
    if seconds is None:
        return ""
    if seconds >= 5400:
        return f", about {seconds / 3600:.1f} h left"
    return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


def recorded_words(outline: TurnOutline) -> str:
    """That a turn's reply is recorded, from which table, and how its verdict was made; empty for any other turn."""
    row = outline.recorded
    if row is None:
        return ""
    sample = f", sample {row.sample + 1}" if row.sample else ""
    said = [
        f"Recorded, from the outcome table {row.table}{sample}: {one_line(outline.model, 40)} gave this reply to the "
        "bare question and saw nothing of this episode."
    ]
    if outline.finish_reason == EDITED:
        said.append("The verdict was given by hand.")
    elif row.by_agreement and outline.verdict is not None:
        accepted = outline.verdict is Verdict.ACCEPT
        same = "the same as" if accepted else "another than"
        counts = "ACCEPT, which ends the episode" if accepted else "REVISE"
        own = f" ({one_line(row.answer, 40)})" if row.answer else ""
        said.append(
            f"The verdict comes of comparing two recorded answers: its own{own} is {same} the standing one. That "
            f"counts as {counts}."
        )
        if not row.answer:
            said[-1] = (
                "The verdict comes of comparing recorded answers: it has none, so it is the same as no other."
            )
    elif row.verdict is not None:
        said.append("The verdict is recorded too.")
    if outline.cost_usd is None:
        said.append("The table does not say what the call cost.")
    return " ".join(said)


def judged_words(said: Judgement) -> str:
    """What a judge's reply came to, and what it cost, in one line."""
    judge = f"the judge {one_line(said.judge, 40)}"
    if said.reply.error is not None:
        words = (
            f"{judge[:1].upper()}{judge[1:]} could not be asked: {one_line(said.reply.error.message, 300)}"
        )
    elif said.rating is None:
        words = f"{judge[:1].upper()}{judge[1:]} gave no rating from 1 to 10 that can be read."
    else:
        words = f"Rated {said.rating:g} of 10 by {judge}; {PASS_MARK:g} or more counts as right."
    cost = [] if said.reply.reused else if_paid(said.reply.usage.cost_usd)
    return f"{words} That cost {cost[0]}, apart from the turn's own cost." if cost else words


def if_paid(cost: float | None) -> list[str]:
    """A cost as a part of a line: `$0.0040` or `no price`; nothing for what is free."""
    return [] if cost == 0 else [dollars(cost)]


def used_words(tokens: int, latency_s: float, cost: float | None, *, recorded: bool) -> list[str]:
    """What a turn or an episode used, as parts of a line: tokens, time, cost. Of recorded replies nothing is told that
    nobody counted."""
    told = [f"{tokens:,} tokens"] if tokens or not recorded else []
    told += [seconds(latency_s)] if latency_s or not recorded else []
    return told if recorded and cost is None else told + if_paid(cost)


def pace_words(tokens_out: int, latency_s: float) -> list[str]:
    """How fast a reply was written, as a part of a line: `18.4 tokens a second`; nothing for a call of less than a
    second, where the way there took longer than the writing."""
    return [f"{tokens_out / latency_s:.1f} tokens a second"] if tokens_out and latency_s >= 1 else []


def cost_words(cost: float | None) -> str:
    """A cost in USD, `free` or `price unknown`."""
    return "price unknown" if cost is None else dollars(cost) if cost else "free"


def per_solved(cost: float | None, right: int) -> str:
    """Cost in USD per solved problem, failed attempts included; in words where there is no such number."""
    return cost_words(cost) if not cost else dollars(cost / right) if right else "nothing solved"


def deciders(
    policy: str,
    generation: int | str | None,
    later: Mapping[int, str],
    generations: Callable[[], Generations] = dict,
) -> str:
    """Who decided an episode, plain text: `jack alone, from turn 3 on random`. `later`: the policies that took over, by
    turn. `generations` gives the generation of every policy that has one; it is called only when `later` has some."""
    generation_of = {policy: generation, **(generations() if later else {})}
    names = {turn: policy_name(name, generation_of.get(name)) for turn, name in {0: policy, **later}.items()}
    return ", ".join(f"from turn {turn + 1} on {name}" if turn else name for turn, name in names.items())


def generations(
    checkpoints: Sequence[CheckpointSummary],
    names: Mapping[str, str],
    teachers: Mapping[str, str] | None = None,
) -> Generations:
    """The generation or iteration of each. Where they are of more than one evolution, or training, each says whose it
    is: by the name that `names` has for the run, by the run's id where another has the same name or it has none. A head
    that was taught before its evolution says by whom: by labels, or by whom `teachers` names for the run."""
    found: dict[str, int | str | None] = {}
    for planners in (False, True):
        some = [one for one in checkpoints if one.is_planner is planners]
        taught = {
            one.policy: "labels"
            if one.config.get("kind") == _LABELLED
            else (teachers or {}).get(one.run_id or "", "a policy")
            for one in some
            if one.config.get("kind") in (_LABELLED, _CLONED)
        }
        found |= _name_apart([(one.policy, one.run_id, one.generation) for one in some], names, taught)
    return found


def generations_of(store: Store) -> Generations:
    """Those of all checkpoints and planners of a store."""
    checkpoints = store.checkpoints.list(planners=None)
    cloned = {
        one.run_id for one in checkpoints if one.config.get("kind") == _CLONED and one.run_id is not None
    }
    teachers = {run: _teacher(store.runs.get(run).config) for run in cloned}
    return generations(checkpoints, store.runs.names(), teachers)


def _teacher(config: Mapping[str, Any]) -> str:
    """The policy that taught an evolution's head, by the run's recipe."""
    name = (config.get("evolution") or {}).get("teacher") or "a policy"
    return one_line(name, _RUN_NAME)


def _name_apart(
    policies: Sequence[tuple[str, str | None, int | None]],
    names: Mapping[str, str],
    taught: Mapping[str, str],
) -> Generations:
    """Of (policy, run, age) each: its age, with its run where there is more than one, with whom it was `taught` by, and
    in words of its own."""
    runs = dict.fromkeys(run for _, run, _ in policies)
    called = {run: one_line(names.get(run, ""), _RUN_NAME) for run in runs if run is not None}
    shared = Counter(called.values())
    whose = {run: f" of {name if name and shared[name] == 1 else run}" for run, name in called.items()}
    found: dict[str, int | str | None] = {
        policy: age if age is None or len(runs) == 1 else f"{age}{whose.get(run or '', '')}"
        for policy, run, age in policies
    }
    for policy, teacher in taught.items():
        if found[policy] is not None:
            found[policy] = f"{found[policy]} (taught by {teacher})"
    alike = Counter(found.values())
    return {
        policy: f"{words} ({policy.removeprefix(CONDUCTOR)})"
        if words is not None and alike[words] > 1
        else words
        for policy, words in found.items()
    }


def distinct(words: Mapping[str, str]) -> dict[str, str]:
    """Value -> its words, with the value behind words that more than one shares: a list hands back the words of what
    was chosen."""
    alike = Counter(words.values())
    return {value: f"{said} ({value})" if alike[said] > 1 else said for value, said in words.items()}


def ago(at: float, now: float) -> str:
    """How long ago, coarsely: `just now`, `5 min ago`, `3 days ago`."""
    seconds = max(0.0, now - at)
    for size, word in ((86400.0, "day"), (3600.0, "hour"), (60.0, "min")):
        if seconds >= size:
            n = int(seconds // size)
            return f"{n} {word}{'s' if n > 1 and word != 'min' else ''} ago"
    return "just now"


def strip_text(strip: str, most: int | None = None) -> str:
    """A stored turn strip, `T·a W·c V·b✗`, with the marks of this app: `●a ■c ▲b↻`. Of more than `most` turns the
    first, how many more there are, and the last: `●a ■c … 7 more … ▲b✓`."""
    begins = [turn.start() for turn in _TURN_OF_STRIP.finditer(strip)]
    if most is not None and len(begins) > most:
        first, last = strip[: begins[most - 2]].rstrip(), strip[begins[-1] :]
        return f"{strip_text(first)} … {len(begins) - most + 1} more … {strip_text(last)}"
    return _TURN_OF_STRIP.sub(lambda turn: _SHAPES[turn[1]], strip).replace("✗", REVISE.glyph)


def strip_key(listed: Iterable[EpisodeSummary]) -> str:
    """How the turn strips of these episodes are read, as markdown; with the models' letters where they share a pool."""
    every = list(listed)
    pools = {one.models for one in every if one.models}
    compared = bool(every) and all(Flag.RECORDED.value in one.flags for one in every)
    return strip_legend(pools.pop() if len(pools) == 1 else (), compared=compared)


def setting_words(setting: Setting, others: Sequence[Setting]) -> str:
    """Under what a policy was played, as far as it tells it from the `others`: `1 turn, argmax`."""
    turns = f"{setting.turn_budget} turn{'' if setting.turn_budget == 1 else 's'}"
    told = {
        "turn_budget": turns,
        "argmax": "argmax" if setting.argmax else "sampled",
        "protocol": rules_words(setting.protocol),
        "pool": f"pool {setting.pool[:6]}",
    }
    needed = {name for name in told if len({getattr(one, name) for one in (setting, *others)}) > 1}
    return ", ".join(words for name, words in told.items() if name in needed) or turns
