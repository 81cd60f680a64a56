"""Rules that ask models until something, made from their names: how strong each model is they take from evolve and
validation tasks, and their settings are the best of TRIALS at most on validation tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from core.episode import Task
    from core.outcomes.asking import Enough, Numbered, Order, Same
    from core.outcomes.lessons import Known
    from core.outcomes.rules import Played
    from core.outcomes.table import OutcomeTable
    from core.play.policies import Policy, Pupil
    from ui.runs.policies import Policies
    from ui.runs.policy_kinds import Lessons

    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

#: In whose order models are asked: of all tasks, of the tasks of a family, or from the cheapest on.
ORDERS = ("family", "price")
_ROUTER = ": name family, price, or a router that does, as in agree:logistic:tfidf."


@dataclass
class School:
    """What rules are learned from: what every model makes of evolve and validation tasks."""

    lessons: Lessons

    @cached_property
    def table(self) -> OutcomeTable | None:
        from core.outcomes.lessons import table_behind

        return table_behind(self.lessons.arena.pool)

    @cached_property
    def evolve(self) -> Known:
        return self.of(self.lessons.questions)

    @cached_property
    def validation(self) -> Known:
        return self.of(self.lessons.validation)

    @cached_property
    def both(self) -> Known:
        from core.outcomes.lessons import joined

        return joined(self.evolve, self.validation)

    @property
    def both_tasks(self) -> list[Task]:
        return [*self.lessons.questions, *self.lessons.validation]

    @cached_property
    def same(self) -> Same:
        """Whether two answers to a question are the same: as the table says, else but for case and spaces."""
        from core.outcomes.pool import RecordedPool
        from core.tasks.graders import normalise_answer

        if self.table is not None:
            return RecordedPool(self.table).same
        return lambda question, one, other: normalise_answer(one) == normalise_answer(other)

    def of(self, tasks: Sequence[Task]) -> Known:
        """What every model makes of these tasks."""
        from core.outcomes.lessons import known_outcomes

        arena = self.lessons.arena
        return known_outcomes(arena.pool, tasks, arena.grade, seed=arena.reply_seed, protocol=arena.protocol)

    def strengths(
        self, known: Known, tasks: Sequence[Task], asked: Sequence[Task], shrinkage: float
    ) -> Numbers:
        """How strong each model is on each of the tasks that are asked [tasks, models]: by its family, or overall."""
        from core.outcomes.rules import scores_for

        return scores_for(known, [task.family for task in tasks], [task.family for task in asked], shrinkage)

    def chosen(
        self, play: Played, score: _Scorer, settings: Sequence[tuple[float, int]]
    ) -> tuple[int, float]:
        """Of the setting of a rule that does best on validation tasks how many models it asks, and the shrinkage."""
        from core.outcomes.rules import chosen_setting

        lessons = self.lessons
        drawn, n = chosen_setting(
            play,
            self.validation,
            lambda drawn: score(self.evolve, lessons.questions, lessons.validation, drawn),
            settings,
        )
        return n, drawn

    def scores(self, score: _Scorer, drawn: float) -> Numbers:
        """The scores for the tasks that are played [tasks, models], by evolve and validation tasks."""
        return score(self.both, self.both_tasks, self.lessons.tasks, drawn)


def pupil(policies: Policies, name: str, teach: Callable[[School], Policy]) -> Pupil:
    """A policy that is chosen by what every model makes of evolve and validation tasks."""
    from core.play.policies import Pupil

    return Pupil(
        name,
        policies.models,
        lambda lessons: teach(School(lessons)),
        ("questions", "validation"),
        lambda models, tasks, turns: models * tasks,
        looks_up=True,
        needs=("answers",),
    )


def number_and_word(name: str, rest: str, least: int, most: int) -> tuple[int | None, str]:
    """Of "", "4", "family" or "4:family": the number and the word. ConfigError for a number out of bounds."""
    first, _, others = rest.partition(":")
    number, word = (int(first), others) if first.isdecimal() else (None, rest)
    if number is not None and not least <= number <= most:
        raise ConfigError(f"{name} cannot ask {number} models: give from {least} to {most}.")
    return number, word


def agree(policies: Policies, rest: str, *, unless_sure: bool = False) -> Policy:
    """Of "", "4", "family" or "4:family": how many are asked at most, and in whose order. `unless_sure`: only the first
    one where a regression is sure of it."""
    from core.play.policies import Pupil

    word = "sure" if unless_sure else "agree"
    most, order = number_and_word(word, rest, 2, max(2, len(policies.models)))
    name = f"{word}:{rest}" if rest else word
    made = pupil(policies, name, partial(_agree, policies, name, most, order, unless_sure))
    if unless_sure:
        made = replace(made, needs=(*made.needs, "texts"))
    if order in ("", *ORDERS):
        return replace(made, needs=(*made.needs, "prices")) if order == "price" else made
    router = policies.resolve(order, may_learn=True)  # which says how likely each model is to be right
    if not isinstance(router, Pupil):
        raise ConfigError(f"Policy '{order}' does not say how likely each model is to be right{_ROUTER}")
    return replace(made, reads=router.reads, cycles=router.cycles, needs=(*made.needs, *router.needs))


def _agree(
    policies: Policies, name: str, most: int | None, order: str, unless_sure: bool, school: School
) -> Policy:
    import numpy as np

    from core.outcomes.asking import AgreementCascade, never, two_agree
    from core.outcomes.rules import agreement, order_by, settings_of
    from core.play.ensembles import Ballot
    from ui.presentation.words import several

    lessons, models = school.lessons, policies.models
    tried = settings_of(agreement, len(models), order == "family", most)
    score = scorer_of(policies, order, school)
    n, drawn = school.chosen(agreement, score, tried)
    found = school.scores(score, drawn)
    orders_of_tasks = order_by(found)
    by_question = named(lessons.tasks, models, orders_of_tasks)
    reckoned = school.scores(school.strengths, np.inf) if order == "price" else found
    strengths = by_model(lessons.tasks, models, reckoned)
    asks = f"asks at most {several(n, 'model')}, until two agree"
    if n == 2:
        asks = "asks 2 models, and the first answer stands whether they agree or not"
    told = f"{name} {asks}{_tell_trials(tried, school)}"
    first: Order = by_question.__getitem__
    enough: Enough = never
    if unless_sure:
        on_both = order_by(score(school.evolve, lessons.questions, school.both_tasks, drawn))
        enough, sure = _first_is_enough(school, order, on_both, orders_of_tasks, n)
        told += (
            f" Where the first one's chance to be right is {sure:g} or more, nobody else is asked."
            if np.isfinite(sure)
            else " The first one is never sure enough to ask nobody else."
        )
    if school.table is not None:
        return AgreementCascade(name, models, first, n, school.same, enough, told=told, strengths=strengths)
    return Ballot(name, models, first, two_agree(school.same, enough), n, told, strengths)


def _first_is_enough(
    school: School, order: str, on_both: Places, on_tasks: Places, most: int
) -> tuple[Enough, float]:
    """Whether a model that comes first is sure enough to be right, and from which chance on it is.

    The chance is chosen among ALONE: it takes the fewest calls that lose nothing against the cascade, whose `most` and
    orders [tasks, models], of evolve and validation tasks and of those that are played, were chosen before. Validation
    tasks alone would leave it to luck: each half of the evolve tasks is told its chances by what the other taught."""
    import numpy as np

    from core.outcomes.rules import ALONE, fewest_calls, first_if_sure, until_two_agree

    lessons, known = school.lessons, school.both
    evolve, half = np.arange(len(lessons.questions)), len(lessons.questions) // 2
    learned = _first_chances(school, order, on_both, on_tasks)
    chance = np.concatenate(
        [
            learned(evolve[half:])(lessons.questions[:half]),
            learned(evolve[:half])(lessons.questions[half:]),
            (of_all := learned(evolve))(lessons.validation),
        ]
    )
    plain = until_two_agree(known, on_both, most)
    sure = fewest_calls({one: first_if_sure(known, on_both, plain, chance, one) for one in ALONE}, plain)
    # A teacher plays the evolve tasks, and is no surer of these for having learned from them.
    rows = dict(zip((task.question for task in school.both_tasks), chance, strict=True))
    others = [task for task in lessons.tasks if task.question not in rows]
    rows |= zip((task.question for task in others), of_all(others), strict=True)
    slots = {model: slot for slot, model in enumerate(known.models)}
    return lambda question, model: bool(rows[question][slots[model]] >= sure), sure


#: Places of evolve tasks that it learns from -> tasks -> how likely each model is right [tasks, models].
_Chances = Callable[["Places"], Callable[["Sequence[Task]"], "Numbers"]]


def _first_chances(school: School, order: str, on_both: Places, on_tasks: Places) -> _Chances:
    """How likely a model is right that comes first.

    Where a table has its one reply to each task, this is read beside the question. Elsewhere a logistic regression
    knows the question's words and, where the order is told families, these."""
    from core.outcomes.frugal import learned_scorer, scores_of_replies

    lessons, table = school.lessons, school.table
    if table is not None and table.card.samples == 1:
        slots = _first_of(school.both, on_both) | _first_of(school.of(lessons.tasks), on_tasks)

        def by_replies(places: Places) -> Callable[[Sequence[Task]], Numbers]:
            scorer = learned_scorer(table, [lessons.questions[place] for place in places], sorted(slots))
            return lambda tasks: scores_of_replies(scorer, table, tasks, sorted(slots))

        return by_replies
    return partial(_by_words, school, order.rpartition(":")[2] == "family")


def _by_words(school: School, family: bool, places: Places) -> Callable[[Sequence[Task]], Numbers]:
    import numpy as np

    from core.outcomes.features import reader_of
    from core.outcomes.routers import LEARNERS

    taught = [school.lessons.questions[place] for place in places]
    if not taught:  # nothing is known yet
        return lambda tasks: np.full((len(tasks), len(school.both.models)), np.nan)
    read = reader_of("tfidf", taught, family=family)
    setting = {"penalty": 1.0, "differing": 0}
    learned = LEARNERS["logistic"].fit(
        read(taught), school.evolve.right[places], school.lessons.arena.seed, setting
    )
    return lambda tasks: learned(read(tasks)) if tasks else np.empty((0, len(school.both.models)))


def _first_of(known: Known, order: Places) -> set[int]:
    """The slots of the models that come first."""
    from core.outcomes.rules import asked_first

    return {int(slot) for slot in asked_first(known, order)[:, 0]}


_Scorer = Callable[["Known", "Sequence[Task]", "Sequence[Task]", float], "Numbers"]


def scorer_of(policies: Policies, order: str, school: School) -> _Scorer:
    """How high a model stands for each of the tasks that are asked, by what is known of others."""
    import numpy as np

    if order == "price":
        price = _price(school)
        return lambda known, tasks, asked, drawn: np.broadcast_to(-price, (len(asked), len(price)))
    if order in ("", "family"):
        return school.strengths
    router: Any = policies.resolve(order, may_learn=True)
    taught = router.teach(school.lessons)
    if not hasattr(taught, "scores"):
        raise ConfigError(f"Policy '{order}' does not say how likely each model is to be right{_ROUTER}")
    return lambda known, tasks, asked, drawn: np.asarray(taught.scores(asked))


def _price(school: School) -> Numbers:
    """What a reply of each model costs on average [models], in money, else in tokens. ConfigError without either."""
    import numpy as np

    known = school.both
    for paid in (known.cost, known.tokens):
        if np.isfinite(paid).any(axis=0).all():
            mean: Numbers = np.nanmean(paid, axis=0)
            return mean
    raise ConfigError("Nobody knows what these models cost, in money or in tokens: leave :price out.")


def _tell_trials(tried: Sequence[object], school: School) -> str:
    n = len(school.lessons.validation)
    return f" (the best of {len(tried)} settings on {n:,} validation tasks)." if len(tried) > 1 else "."


def vote(policies: Policies, rest: str, *, weighted: bool = False) -> Policy:
    """Of "", "5", and where votes are weighted also "family" and "5:family": how many vote, and what they weigh."""
    word = "weighted-vote" if weighted else "vote"
    voters, by = number_and_word(word, rest, 1, len(policies.models))
    if by not in (("", "family") if weighted else ("",)):
        raise ConfigError(
            f"'{by}' says nothing of {word}: give how many vote" + (", or family." if weighted else ".")
        )
    name = f"{word}:{rest}" if rest else word
    return pupil(policies, name, partial(_vote, name, voters, by, weighted))


def _vote(name: str, voters: int | None, by: str, weighted: bool, school: School) -> Policy:
    import numpy as np

    from core.outcomes.asking import most_weight
    from core.outcomes.rules import log_odds, order_by, settings_of, vote, vote_by_odds
    from core.play.ensembles import Ballot

    lessons, models = school.lessons, school.both.models
    play = vote_by_odds if weighted else vote
    settings = settings_of(play, len(models), bool(by), voters)
    n, drawn = school.chosen(play, school.strengths, settings)
    found = school.scores(school.strengths, drawn)
    weigh: Callable[[Numbers], Numbers] = log_odds if weighted else np.ones_like
    orders = named(lessons.tasks, models, order_by(found))
    tally = most_weight(school.same, by_model(lessons.tasks, models, weigh(found)))
    told = f"{name} asks {n} models{_tell_trials(settings, school)}"
    strengths = by_model(lessons.tasks, models, found)
    return Ballot(name, models, orders.__getitem__, tally, n, told, strengths)


def named(
    tasks: Sequence[Task], models: Sequence[str], orders: NDArray[np.int64]
) -> Mapping[str, tuple[str, ...]]:
    return {
        task.question: tuple(models[slot] for slot in row) for task, row in zip(tasks, orders, strict=True)
    }


def by_model(tasks: Sequence[Task], models: Sequence[str], numbers: Numbers) -> Numbered:
    """Of numbers [tasks, models] those of a question, by model."""
    found = {
        task.question: dict(zip(models, row, strict=True))
        for task, row in zip(tasks, numbers.tolist(), strict=True)
    }
    return found.__getitem__


def bayes(policies: Policies, rest: str) -> Policy:
    """Of "" or "0.9": the chance at which an answer is sure enough."""
    try:
        sure = float(rest) if rest else None
    except ValueError:
        sure = -1.0
    if sure is not None and not 0 < sure < 1:
        raise ConfigError(f"'{rest}' is no chance: give a number between 0 and 1, such as bayes:0.9.")
    name = f"bayes:{rest}" if rest else "bayes"
    return pupil(policies, name, partial(_bayes, name, sure))


def _bayes(name: str, sure: float | None, school: School) -> Policy:
    import numpy as np

    from core.outcomes.asking import sure_enough
    from core.outcomes.lessons import best_setting
    from core.outcomes.rules import SURE, order_by, strengths, until_sure
    from core.play.ensembles import Ballot

    lessons, models = school.lessons, school.both.models
    options = np.array([options_in(task) for task in lessons.validation])
    strength = strengths(school.evolve)
    settings = SURE if sure is None else (sure,)
    enough = best_setting(
        settings, lambda one: until_sure(school.validation, order_by(strength), strength, options, one).score
    )
    strength = strengths(school.both)
    order = tuple(models[slot] for slot in order_by(strength))
    chances = dict(zip(models, strength.tolist(), strict=True))
    n_of = {task.question: options_in(task) for task in lessons.tasks}
    tally = sure_enough(school.same, lambda question: chances, n_of.__getitem__, enough)
    told = f"{name} asks until an answer has the chance {enough:g}{_tell_trials(settings, school)}"
    return Ballot(name, models, lambda question: order, tally, len(models), told, lambda question: chances)


#: Of so many answers one is right where a question lists none.
OPTIONS = 10


def options_in(task: Task) -> int:
    """Of how many answers one is right: the choices of a question, else OPTIONS."""
    from core.tasks.choices import options_of

    return max(2, len(options_of(task.question))) if task.grader == "choice" else OPTIONS


def frugal(policies: Policies, _: str) -> Policy:
    """A cascade that goes on until a scorer that reads replies believes one."""
    return pupil(policies, "frugal", _frugal)


def _frugal(school: School) -> Policy:
    from core.outcomes.frugal import FRUGAL, believed, choose_frugal
    from core.outcomes.rules import order_by, strengths
    from core.play.ensembles import Ballot

    if school.table is None:
        raise ConfigError(
            "frugal learns from the recorded replies of all models, which only an outcome table has: play --pool "
            "outcomes:NAME, or cascade."
        )
    lessons, models = school.lessons, school.evolve.models
    strength = strengths(school.evolve)
    slots = order_by(strength)
    scorer, n, sure = choose_frugal(school.table, lessons.questions, lessons.validation, slots)
    order = tuple(models[slot] for slot in slots)
    told = (
        f"frugal asks {', '.join(order[:n])} until a reply's chance is {sure:g}{_tell_trials(FRUGAL, school)}"
    )
    reckoned = dict(zip(models, strength.tolist(), strict=True))
    tally = believed(scorer, sure)
    return Ballot("frugal", models, lambda question: order, tally, n, told, lambda question: reckoned)
