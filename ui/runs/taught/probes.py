"""The cascade that an encoder's state decides, made from its name: linear probes read off it how likely each answer is
right. A coordinator's head reads the same state, so that what the probes tell can be taught to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from core.errors import ConfigError
from ui.runs.taught.rules import ORDERS, School, by_model, named, number_and_word, pupil, scorer_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from core.episode import Task
    from core.play.policies import Policy
    from ui.runs.policies import Policies

    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

#: How many models are asked at most, and from which chance on nobody else is, never at the last: the settings that are
#: tried.
MOST, LIKELY = (2, 3), (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, math.inf)


def probe(policies: Policies, rest: str) -> Policy:
    """Of "", "3", "family" or "3:family": how many are asked at most, and in whose order."""
    most, order = number_and_word("probe", rest, 2, max(2, len(policies.models)))
    name = f"probe:{rest}" if rest else "probe"
    if order not in ("", *ORDERS):
        raise ConfigError(f"'{order}' says nothing of probe: give how many are asked, family or price.")
    made = pupil(policies, name, partial(_probe, policies, name, most, order))
    needs = (*made.needs, "texts", *(("prices",) if order == "price" else ()))
    return replace(made, needs=needs, reads=True)


def _probe(policies: Policies, name: str, most: int | None, order: str, school: School) -> Policy:
    import numpy as np

    from core.outcomes.asking import ProbeCascade
    from core.outcomes.lessons import best_setting
    from core.outcomes.rules import agreement, order_by, settings_of, until_likely
    from ui.presentation.words import several

    if school.table is None or school.table.card.samples != 1:
        raise ConfigError(
            f"{name} reads the one recorded reply of a model to a task, which only an outcome table has: play --pool "
            "outcomes:NAME with one reply each, or sure."
        )
    lessons, models = school.lessons, policies.models
    score = scorer_of(policies, order, school)
    _, drawn = school.chosen(agreement, score, settings_of(agreement, len(models), order == "family", None))
    tasks = [*school.both_tasks, *lessons.tasks]
    found = score(school.both, school.both_tasks, tasks, drawn)
    orders = named(tasks, models, order_by(found))
    strengths = (
        school.scores(school.strengths, np.inf) if order == "price" else found[len(school.both_tasks) :]
    )
    tried = [(n, sure) for n in ((most,) if most else MOST) if n <= len(models) for sure in LIKELY]
    readings = _Readings(school, orders, max(n for n, _ in tried))
    on_both = readings.crossed()
    n, sure = best_setting(
        tried, lambda one: until_likely(school.both, readings.order, on_both[: one[0]], one[1]).score
    )
    # A teacher plays the evolve tasks, and is no surer of these for having learned from them.
    known = {task.question: place for place, task in enumerate(school.both_tasks)}
    steps = [
        _by_question(lessons.tasks, models, known, both, own)
        for both, own in zip(on_both[:n], readings.of_evolve(lessons.tasks)[:n], strict=True)
    ]
    enough = f" or an answer has the chance {sure:g} to be right" if math.isfinite(sure) else ""
    told = (
        f"{name} asks at most {several(n, 'model')}, until two agree{enough}; else the likeliest answer stands "
        f"(the best of {len(tried)} settings on {len(school.both_tasks):,} evolve and validation tasks)."
    )
    return ProbeCascade(
        name,
        models,
        orders.__getitem__,
        n,
        lambda question, said: steps[len(said) - 1].get(question, {}),
        sure,
        told=told,
        strengths=by_model(lessons.tasks, models, strengths),
    )


def _by_question(
    tasks: Sequence[Task], models: Sequence[str], known: Mapping[str, int], both: Numbers, own: Numbers
) -> Mapping[str, Mapping[str, float]]:
    """How likely each model is right on each of the tasks, by question: as `both` says of those that are known, else
    as their `own` row does; without those of which nobody knows."""
    found = {}
    for task, row in zip(tasks, own, strict=True):
        chances = both[known[task.question]] if task.question in known else row
        found[task.question] = {
            model: float(chance) for model, chance in zip(models, chances, strict=True) if chance == chance
        }
    return found


@dataclass
class _Readings:
    """What the encoder makes of the conversations in which the first `most` models are asked in order, and what probes
    learn from it."""

    school: School
    orders: Mapping[str, Sequence[str]]
    most: int

    @cached_property
    def order(self) -> Places:
        """The slots of the models in order, of evolve and validation tasks [tasks, models]."""
        return self._slots(self.school.both_tasks)

    @cached_property
    def states(self) -> Mapping[str, Numbers]:
        """By question the states after each of the models was asked [most, hidden size], NaN where it was over."""
        import numpy as np

        from core.outcomes.asking import ProbeCascade
        from core.play.session import request_at

        lessons = self.school.lessons
        arena, encoder = lessons.arena, lessons.reader
        tasks = {task.question: task for task in (*self.school.both_tasks, *lessons.tasks)}
        asks = ProbeCascade(
            "probe", arena.models, self.orders.__getitem__, self.most, lambda question, said: {}, np.inf
        )
        played = arena.play(asks, [*tasks.values()])
        # After a model that ends it no turn follows.
        there = [
            (place, k)
            for place, one in enumerate(played)
            for k in range(1, self.most + 1)
            if k < len(one.turns)
        ]
        requests = [request_at(played[place], k) for place, k in there]
        read = encoder.encode(requests, input_format=encoder.format_for(arena.protocol)).states
        states = np.full((len(tasks), self.most, encoder.hidden_size), np.nan)
        for (place, k), state in zip(there, read, strict=True):
            states[place, k - 1] = state
        return dict(zip(tasks, states, strict=True))

    @cached_property
    def of_evolve(self) -> Callable[[Sequence[Task]], list[Numbers]]:
        """What probes say that learned from all evolve tasks."""
        import numpy as np

        return self.learned(np.arange(len(self.school.lessons.questions)))

    def crossed(self) -> list[Numbers]:
        """After each model how likely each answer is right, of evolve and validation tasks [tasks, models]: each half
        of the evolve tasks is told it by what the other taught."""
        import numpy as np

        tasks, validation = self.school.lessons.questions, self.school.lessons.validation
        evolve, half = np.arange(len(tasks)), len(tasks) // 2
        parts = (
            self.learned(evolve[half:])(tasks[:half]),
            self.learned(evolve[:half])(tasks[half:]),
            self.of_evolve(validation),
        )
        return [np.concatenate(step) for step in zip(*parts, strict=True)]

    def learned(self, places: Places) -> Callable[[Sequence[Task]], list[Numbers]]:
        """Probes that learned from evolve tasks at these places, one for each model of each step: tasks -> after each
        model how likely each answer is right [tasks, models]."""
        import numpy as np

        from core.outcomes.frugal import probe as linear_probe

        known, order = self.school.both.of(places), self.order[places]
        states = self._rows([self.school.both_tasks[place] for place in places])
        probes = [
            [
                linear_probe(states[:, k], np.take_along_axis(known.right, order[:, j : j + 1], axis=1)[:, 0])
                for j in range(k + 1)
            ]
            for k in range(self.most)
        ]

        def chances(tasks: Sequence[Task]) -> list[Numbers]:
            rows, slots = self._rows(tasks), self._slots(tasks)
            found = np.full((self.most, len(tasks), len(known.models)), np.nan)
            for k, of_step in enumerate(probes):
                for j, chance in enumerate(of_step):
                    np.put_along_axis(found[k], slots[:, j : j + 1], chance(rows[:, k])[:, None], axis=1)
            return [*found]

        return chances

    def _rows(self, tasks: Sequence[Task]) -> Numbers:
        import numpy as np

        size = self.school.lessons.reader.hidden_size
        return np.array([self.states[task.question] for task in tasks]).reshape(len(tasks), self.most, size)

    def _slots(self, tasks: Sequence[Task]) -> Places:
        """In which order the models are asked that can be asked [tasks, models]."""
        import numpy as np

        from core.outcomes.rules import asked_first

        slot_of = {model: slot for slot, model in enumerate(self.school.both.models)}
        orders = [[slot_of[model] for model in self.orders[task.question]] for task in tasks]
        return asked_first(
            self.school.of(tasks), np.array(orders, np.int64).reshape(len(tasks), len(slot_of))
        )
