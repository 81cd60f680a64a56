"""What is asked: which episodes, whose, what else a reader has chosen, how a store is read for it; and what several
answers say of policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from core.episode import Status
from core.errors import ConfigError
from storage.analysis.costs import PolicyCost
from storage.analysis.hidden_states import HiddenStates, PolicyWithStates
from storage.analysis.routing import TurnReference, count_episodes
from storage.analysis.standings import PolicyInRun, PolicySide, Setting
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import MIXED, TWO_DECIDED
from storage.store import Store
from ui.answers.blocks import Address, Answer, Choice, Column, Look, Table, Way
from ui.presentation.theme import Mark, correct_mark
from ui.presentation.words import Generations, generations_of, policy_name, setting_words, strip_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Side:
    """The episodes that are counted together, `letter` empty where there is one side only. `name` is plain text;
    `setting` is given where the policy was played under several."""

    letter: str
    name: str
    where: EpisodeFilter
    setting: Setting | None = None

    @classmethod
    def of(cls, played: PolicySide, letter: str, name: str) -> Side:
        """A policy of a comparison."""
        forks = "without" if played.run is None else None  # what counts for it
        expression = played.setting.expression if played.setting else None
        where = EpisodeFilter(run=played.run, policy=played.policy, forks=forks, q=expression)
        return cls(letter, name, where, played.setting)

    @property
    def played(self) -> PolicySide:
        """The same as comparisons read it."""
        return PolicySide(self.where.policy or "", self.where.run, self.setting)

    @property
    def title(self) -> str:
        """The name with its letter where there are two, else nothing."""
        return f"{self.letter} · {self.name}" if self.letter else ""

    def listed(self, q: str | None = None, **more: str | None) -> Address:
        """The list of these episodes as totals count them, finished ones alone: those for which an expression of the
        filter language holds, and with more fields of the filter set."""
        where = self.where if q is None else self.where.narrow(q)
        if more.get("policy") == MIXED:
            where, more = where.narrow(TWO_DECIDED), {**more, "policy": None}
        return Address("episodes", {**where.to_query(), "status": Status.FINISHED.value, **more})


class Row(NamedTuple, Generic[T]):
    """One thing of a side, for a table."""

    side: Side
    of: T


#: The column that tells rows of A from rows of B; empty, and so left out, where there is one side.
SIDE = Column("side", "", get=lambda row: row.side.letter)


@dataclass(frozen=True, slots=True)
class Asked:
    """One side, or A and B, and how their store is read.

    `sides` may be more than two: A is the baseline of the others, B the one that is looked at. `together` are all
    policies, as one side. `chosen`: the reader named the sides; else they are what a page opens on. `choices` are what
    the address, or the command line, says beside that; `address` are the sides as its parameters, where what a page
    opens on may change with the store. `remember` makes a function of (store, *arguments) give what it gave before.
    `subject` is what is asked about where it is no episodes, as the course of a run; `counted` are then how many things
    each side has, if these are no episodes, and `counts_of` what they are called."""

    store: Store
    sides: tuple[Side, ...]
    together: Side
    chosen: bool = True
    choices: Mapping[str, str] = field(default_factory=dict)
    remember: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda read: read
    address: Mapping[str, str | None] = field(default_factory=dict)
    subject: Any = None
    counted: Mapping[str, int] = field(default_factory=dict)
    counts_of: str = "questions"

    @property
    def compared(self) -> bool:
        """Two selections are set against each other."""
        return len(self.sides) == 2

    def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """What `function(store, *arguments)` gives; nobody may change it."""
        found: T = self.remember(function)(self.store, *arguments)
        return found

    def say(self, policy: str) -> str:
        """A policy's name, plain text."""
        return policy_name(policy, self.read(generations_of).get(policy))

    def rows(self, find: Callable[[Side], Iterable[T]]) -> list[Row[T]]:
        """What is found for each side, side by side."""
        return [Row(side, one) for side in self.sides for one in find(side)]

    def each(self, words: Callable[[Side], str]) -> str:
        """A line for each side, with its letter where there are two."""
        lines = [(side.letter, words(side)) for side in self.sides]
        return "\n".join(f"{letter}: {line}" if letter else line for letter, line in lines if line)

    def choice(
        self,
        name: str,
        words: str,
        options: Mapping[str, str],
        default: str = "",
        look: Look = "segments",
        also: Mapping[str, str | None] | None = None,
    ) -> Choice:
        """What the reader has chosen among `options`; an address that names none of them means the first, or
        `default`. Of `several` those that there are. `also`: what else a choice sets."""
        value = self.choices.get(name, "")
        if look == "several":
            return Choice(
                name, words, options, ",".join(one for one in value.split(",") if one in options), look
            )
        meant = default or next(iter(options))
        return Choice(name, words, options, value if value in options else meant, look, also or {})

    @property
    def things(self) -> str:
        """What `counts` counts."""
        return self.counts_of if self.counted else "finished episodes"

    def counts(self) -> dict[str, int]:
        """How many finished episodes of each side count, by its name; or questions, where it is about these."""
        if self.counted:
            return dict(self.counted)
        return {side.title or side.name: self.read(count_episodes, side.where) for side in self.sides}

    def refuse_unknown(self, found: Iterable[Answer]) -> None:
        """ConfigError for a choice that none of these answers offers, or a value that it does not have."""
        offered = {choice.name: choice for one in found for choice in one.choices}
        for name, value in self.choices.items():
            if name not in offered:
                raise ConfigError(
                    f"'{name}' is no choice here: there is {', '.join(sorted(offered)) or 'none'}."
                )
            options = offered[name].options
            for one in value.split(",") if offered[name].look == "several" else [value]:
                if one not in options:
                    some = ", ".join(filter(None, options))
                    raise ConfigError(f"{name} cannot be '{one}': choose one of {some}.")

    def here(self, page: str, **more: str | None) -> Address:
        """This page with what has been chosen, and more."""
        return Address(page, {**self.choices, **more})

    def alone(self, *sides: Side) -> Asked:
        """The same, asked of other sides."""
        return replace(self, sides=sides)


def asked_of(
    store: Store, where: EpisodeFilter, against: str | None = None, choices: Mapping[str, str] | None = None
) -> Asked:
    """The episodes of a filter or, with `against`, its policy (A) beside that one (B). What is read once is remembered.
    ConfigError where `against` has no policy to be set against."""
    names = generations_of(store)

    def side(letter: str, policy: str | None) -> Side:
        name = "all policies" if policy is None else policy_name(policy, names.get(policy))
        return Side(letter, name, replace(where, policy=policy))

    if against is not None and where.policy is None:
        raise ConfigError("A policy can only be set against another: name the first by --policy.")
    sides = [side("A", where.policy), side("B", against)] if against else [side("", where.policy)]
    return Asked(store, tuple(sides), side("", None), choices=choices or {}, remember=memory())


def asked_of_policies(
    store: Store, played: Sequence[PolicySide], say: Callable[[PolicySide], str], **more: Any
) -> Asked:
    """Up to eight policies: the baseline A, B, then the others. `say` names one; `more`: further fields."""
    sides = [Side.of(one, letter, say(one)) for letter, one in zip("ABCDEFGH", played, strict=False)]
    return Asked(store, tuple(sides), Side("", "all of them", EpisodeFilter()), **more)


def asked_of_states(store: Store, chosen: PolicyWithStates, name: str, **more: Any) -> Asked:
    """The turns of a policy in a run that left hidden states. `name` names it; `more`: further fields."""
    side = Side("", name, EpisodeFilter(run=chosen.run_id, policy=chosen.policy))
    return Asked(store, (side,), side, **more)


def asked_of_questions(store: Store, states: HiddenStates, encoder: str, tasks: str, **more: Any) -> Asked:
    """The questions of a task set as an encoder reads them before any play. `more`: further fields."""
    side = Side("", f"{tasks}, read by {encoder}", EpisodeFilter())
    return Asked(store, (side,), side, subject=states, counted={side.name: len(states.points)}, **more)


def memory() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes a function give what it gave before for the same arguments, as long as this lives."""
    found: dict[Any, Any] = {}

    def remember(read: Callable[..., Any]) -> Callable[..., Any]:
        def lookup(*arguments: Any) -> Any:
            key = read, arguments
            if key not in found:
                found[key] = read(*arguments)
            return found[key]

        return lookup

    return remember


@dataclass(frozen=True, slots=True)
class Behind:
    """What is behind a mark: its words, a way there, the newest of the turns that it counts where it counts any."""

    words: str
    way: Way
    turns: Sequence[TurnReference] | None = None


def turns_table(asked: Asked, found: Sequence[TurnReference], title: str = "", key: str = "turns") -> Table:
    """Turns, each a link to its replay."""
    return Table.of(
        found,
        Column("open", "Open", "link", _replay, link="This turn"),
        Column("episode", "Episode", "id", lambda one: one.episode_id),
        Column("turn", "Turn", "count", lambda one: one.index + 1),
        Column("answer", "Answer", get=lambda one: mark_words(correct_mark(one.correct))),
        Column("question", "Question", get=lambda one: one.question),
        Column("turns", "Turns", get=lambda one: strip_text(one.strip)),
        Column("policy", "Policy", get=lambda one: asked.say(one.policy) + ", not alone" * one.mixed),
        title=title,
        key=key,
    )


def _replay(one: TurnReference) -> Address:
    return Address("replay", {"ep": one.episode_id, "t": str(one.index + 1)})


def mark_words(mark: Mark) -> str:
    """A mark in text: `● right`."""
    return f"{mark.glyph} {mark.word}"


# What several answers say of policies


def named(one: PolicyCost, say: Callable[[str], str], found: Sequence[PolicyCost]) -> str:
    """A policy's name, with its setting where it was played under several."""
    name = say(one.policy)
    if one.setting is None:
        return name
    others = [other.setting for other in found if other.policy == one.policy and other.setting]
    return f"{name}, {setting_words(one.setting, others)}"


def side_words(played: Iterable[PolicyInRun], names: Generations) -> Callable[[PolicySide], str]:
    """How a comparison names its sides, plain text: by what was played under a setting of its own, with the setting.
    `played`: who has played under which; `names`: the generations by which policies are named."""
    settings: dict[str, set[Setting]] = {}
    for one in played:
        settings.setdefault(one.policy, set()).add(one.setting)

    def say(side: PolicySide) -> str:
        name = policy_name(side.policy, names.get(side.policy))
        if side.setting is None:
            return name
        return f"{name}, {setting_words(side.setting, sorted(settings[side.policy], key=str))}"

    return say


def prefers_nothing(store: Store, checkpoint: str) -> bool:
    """Whether all parameters of a checkpoint's head are zero and its choices are drawn among everything; False for
    what is no stored checkpoint."""
    one = store.checkpoints.find(checkpoint)
    if one is None:
        return False
    return not (one.head_vector.any() or one.head.argmax or one.model_mask or one.role_mask)


def like_chance(policies: Sequence[str], say: Callable[[str], str], prefers: Callable[[str], bool]) -> str:
    """Why checkpoints among these policies have the numbers of `random`, plain text; empty where none does or `random`
    is not among them. `say` names a policy, `prefers` says whether it `prefers_nothing`."""
    if "random" not in policies:
        return ""
    neutral = [one for one in dict.fromkeys(policies) if one != "random" and prefers(one)]
    return " ".join(
        f"{say(one)} prefers nothing: all parameters of its head are zero, so it draws evenly like “{say('random')}”. "
        "With the same seeds both make the same choices, and their numbers are the same."
        for one in neutral
    )
