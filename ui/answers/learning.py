"""How an evolution or a training goes, update by update: its progress with its noise, and whether it is better than
what learned nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.evolution.fitness import EpisodeStatistics
from core.settings import POCKET_POOL
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.asked import Asked, Side
from ui.answers.blocks import (
    Answer,
    Block,
    Choice,
    Dash,
    Estimate,
    Estimates,
    Line,
    Mark,
    Point,
    Trace,
    Trend,
)
from ui.presentation.theme import one_line, percent
from ui.presentation.words import share_words
from ui.runs.course import (
    Course,
    Lineage,
    Training,
    Validated,
    binomial_error,
    control_words,
    tasks_each,
)
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan

#: What is measured now and then alone.
FREE = "written freely"
_CURVES = {"best": "dot", "mean": "solid", "median": "dash"}
_CONTROL_DASHES: tuple[Dash, ...] = ("longdash", "longdashdot", "dashdot")


@dataclass(frozen=True, eq=False)
class Shown:
    """What is asked about: the course of a run, the place of the chosen update in it, a second run on the same axes."""

    course: Lineage | Training
    at: int
    second: Lineage | Training | None

    @property
    def index(self) -> int:
        """The chosen update's number."""
        return self.course.indices[self.at]


def asked_of_course(
    store: Store,
    course: Lineage | Training,
    update: int | None = None,
    second: Lineage | Training | None = None,
    **more: Any,
) -> Asked:
    """An evolution or a training that has updates, at the one of this number or the nearest one (None: the last), and a
    second one of its kind beside it. `more`: further fields."""
    at = len(course.indices) - 1 if update is None else nearest(course.indices, update)
    subject = Shown(course, at, second if second and second.updates else None)
    side = Side("", course.name, EpisodeFilter(run=course.run))
    return Asked(store, (), side, subject=subject, **more)


def nearest(indices: Sequence[int], number: int) -> int:
    """The place of a number among those that are there, or of the nearest one."""
    return min(range(len(indices)), key=lambda place: abs(indices[place] - number))


def shown(asked: Asked) -> Shown:
    """What is asked about."""
    found: Shown = asked.subject
    return found


def is_evolution(asked: Asked) -> bool:
    """An evolution is asked about."""
    return isinstance(shown(asked).course, Lineage)


def is_training(asked: Asked) -> bool:
    """A training is asked about."""
    return isinstance(shown(asked).course, Training)


def lineage_of(asked: Asked) -> tuple[Lineage, int, Lineage | None]:
    """The evolution, the place of the chosen generation, the second evolution."""
    course, at, second = shown(asked).course, shown(asked).at, shown(asked).second
    assert isinstance(course, Lineage)
    return course, at, second if isinstance(second, Lineage) else None


def training_of(asked: Asked) -> tuple[Training, int, Training | None]:
    """The training, the place of the chosen iteration, the second training."""
    course, at, second = shown(asked).course, shown(asked).at, shown(asked).second
    assert isinstance(course, Training)
    return course, at, second if isinstance(second, Training) else None


def axis_choice(asked: Asked) -> Choice:
    """What curves are drawn along."""
    axes = shown(asked).course.axes
    return asked.choice("x", "Along", {key: words.capitalize() for key, words in axes.items()})


def trace(course: Course, axis: str, name: str, values: Sequence[float | None], **look: Any) -> Trace:
    """A number of every update as a line."""
    known = zip(course.axis(axis), values, strict=True)
    return Trace(name, [Point(x, Estimate(one, None)) for x, one in known if one is not None], **look)


def trend(asked: Asked, axis: str, traces: Sequence[Trace], words: str, **more: Any) -> Trend:
    """Lines along the updates with the chosen one marked; `words` say what their values are."""
    course, at = shown(asked).course, shown(asked).at
    return Trend(traces, (course.axes[axis], words), course.axis(axis)[at], **more)


def small(
    asked: Asked,
    key: str,
    lines: Mapping[str, Sequence[float | None]],
    places: int | None,
    title: str,
    term: str = "",
) -> Trend:
    """A number of every update, or two, beside other ones; what is measured now and then alone has marks."""
    course, axis = shown(asked).course, axis_choice(asked).value
    looks: Sequence[dict[str, Any]] = ({}, {"tone": "neutral", "dash": "dash"})
    traces = [
        trace(course, axis, name, values, **look, look="lines+markers" if name == FREE else "lines")
        for (name, values), look in zip(lines.items(), looks, strict=False)
    ]
    words = next(iter(lines)) if len(lines) == 1 else title.lower()  # a legend tells several apart
    return trend(asked, axis, traces, words, places=places, small=True, title=title, key=key, term=term)


def estimate(one: Validated | EpisodeStatistics) -> Estimate:
    """How many of how many tasks were solved."""
    return Estimate(one.right / one.n, one.interval, one.right, one.n)


def _validated(course: Course, axis: str, name: str, tone: Any) -> Trace:
    """What was validated, as marks with their intervals."""
    known = zip(course.axis(axis), course.validations, strict=True)
    points = [Point(x, estimate(one), detail=f"{one.right} of {one.n}") for x, one in known if one]
    return Trace(name, points, tone, look="markers")


# Progress


def fitness(asked: Asked) -> Answer:
    """Best, mean and median of every population, how far chance alone moves them, what was validated, the controls."""
    lineage, at, second = lineage_of(asked)
    along = axis_choice(asked)
    axis, x = along.value, lineage.axis(along.value)
    alone = (
        lineage.plan is not None and lineage.plan.evolution.population == 1
    )  # best, mean and median are one
    traces = [
        trace(lineage, axis, name, lineage.of_updates(name), dash=dash)
        for name, dash in _CURVES.items()
        if name == "mean" or not alone
    ]
    traces.append(_validated(lineage, axis, "validation", "right"))
    if second is not None:
        mean = second.of_updates("mean")
        traces.append(trace(second, axis, f"mean, {second.name}", mean, tone="second"))
        traces.append(_validated(second, axis, f"validation, {second.name}", "second"))
    for place, (name, one) in enumerate(lineage.controls.items()):
        ends = [Point(end, estimate(one)) for end in (min(x), max(x))]
        level = [replace(end, estimate=replace(end.estimate, ci95=None)) for end in ends]
        traces.append(Trace(control_words(name), level, "neutral", _CONTROL_DASHES[place % 3]))
    return Answer(
        "progress",
        "Is it getting better, beyond chance?",
        f"{best_words(lineage)}\n{_generation_words(lineage, at)}",
        [trend(asked, axis, traces, "answered right", bands=_noise(lineage, axis))],
        [_noise_words(lineage, at), *_first_steps(lineage), *_facts(lineage)],
        term="Noise band",
        choices=[along],
    )


def best_words(course: Lineage | Training) -> str:
    """What came of it, a sentence."""
    if course.best is None or (best := course.validations[course.best]) is None:
        return f"No {course.noun} has been validated, so how good it became is not known."
    said = f"{course.noun.capitalize()} {course.indices[course.best]} is the best validated: "
    return f"{said}{share_words(best.share, best.interval)} of {best.n:,} held-apart tasks."


def _generation_words(lineage: Lineage, at: int) -> str:
    """What the chosen generation came to, a sentence."""
    one, index = lineage.stats[at], lineage.indices[at]
    parts = [f"mean {percent(one.mean)}, best {percent(one.best)}, median {percent(one.median)}"] * bool(
        index
    )
    parts += _validated_words(lineage, at)
    return f"Generation {index}: {'; '.join([*parts, f'{lineage.reach_words} {one.sigma:.3g}'])}."


def _iteration_words(training: Training, at: int) -> str:
    """What the chosen iteration came to, a sentence."""
    one, parts = training.stats[at], []
    if (played := one.rollouts) is not None:
        forced = " (forced by the grammar)" if training.forced else ""
        missing = f", {played.missing:,} missing" if played.missing else ""
        parts.append(f"{percent(played.right)} of {played.n:,} rollouts right{missing}")
        parts.append(f"{percent(played.readable)} readable{forced}, mean reward {one.reward_mean:.2f}")
    parts += _validated_words(training, at)
    return f"Iteration {training.indices[at]}: {'; '.join(parts) or 'not validated'}."


def _validated_words(course: Course, at: int) -> list[str]:
    one = course.validations[at]
    return [f"validated {share_words(one.share, one.interval)} of {one.n:,}"] if one else []


def _noise(lineage: Lineage, axis: str) -> dict[str, list[tuple[float, float, float]]]:
    """One standard error around the mean: of one candidate's fitness, and of the population's mean."""
    candidate: list[tuple[float, float, float]] = []
    population: list[tuple[float, float, float]] = []
    for place, (x, one) in enumerate(zip(lineage.axis(axis), lineage.stats, strict=True)):
        if lineage.indices[place] > 0:
            if tasks := tasks_each(lineage, place):
                error = binomial_error(one.mean, tasks)
                candidate.append((x, one.mean - error, one.mean + error))
            if (played := lineage.plays[place]) and math.isfinite(played.error):
                population.append((x, one.mean - played.error, one.mean + played.error))
    found = {"one candidate": candidate, "the mean": population}
    return {f"± 1 standard error of {name}": ends for name, ends in found.items() if ends}


def _noise_words(lineage: Lineage, at: int) -> str:
    """What the bands are, with the chosen generation's own numbers."""
    place = max(at, 1) if len(lineage.updates) > 1 else at
    tasks, played = tasks_each(lineage, place), lineage.plays[place]
    each = f" ({tasks} tasks)" if tasks else ""
    sentence = f"The light band around the mean is one binomial standard error of a single candidate's fitness{each}."
    if played is not None and math.isfinite(played.error):
        sentence += (
            f" The dark one is that of the population's mean ({played.n:,} episodes), the episodes of one task taken "
            "together: candidates that play the same tasks are lucky or unlucky with them together."
        )
    sentence += " Diamonds: the mean on held-apart tasks with its 95 % Wilson interval."
    if (plan := lineage.plan) and (plan.evolution.diversity or plan.evolution.turn_cost):
        sentence += " This fitness has further terms besides the share of tasks solved; the bands do not."
    return sentence


def _first_steps(lineage: Lineage) -> Iterator[str]:
    """How far the first step of each block of the vector reached, where the run kept it."""
    sizes = "; ".join(
        f"{'singular values' if block == 'svf' else one_line(block, 20)}: {step.step_size:.3g}, which spreads the "
        f"logits by {step.logit_spread:.3g}"
        for block, step in lineage.steps.items()
    )
    if sizes:
        yield f"First step size of the {sizes}."


def pace(asked: Asked) -> Answer:
    """How large an evolution's steps are, and how many replies they need."""
    lineage, at, _ = lineage_of(asked)
    reach, sigma = lineage.reach_words, [one.sigma for one in lineage.stats]
    asked_for, known = lineage.of_updates("calls"), lineage.of_updates("calls_saved")
    said = f"In generation {lineage.indices[at]} its {reach} was {sigma[at]:.3g}"
    counted, saved = asked_for[at], known[at]
    if counted is not None and saved is not None:
        said += f"; it asked for {counted:,.0f} replies and had {saved:,.0f} from cache"
    return Answer(
        "pace",
        "How large are its steps, and how many replies does a generation need?",
        f"{said}.",
        [
            small(asked, "reach", {reach: sigma}, 3, reach.capitalize(), "Sigma" * ("sigma" in reach)),
            small(asked, "replies", {"asked": asked_for, "from cache": known}, 0, "Replies", "Cached reply"),
        ],
    )


def rollouts(asked: Asked) -> Answer:
    """The share of right rollouts and the mean reward of every iteration, and the planner on held-apart tasks."""
    training, at, second = training_of(asked)
    along = axis_choice(asked)
    axis = along.value
    reward = training.of_updates("reward_mean")
    traces = [
        trace(training, axis, "right rollouts", training.of_rollouts("right")),
        trace(training, axis, "mean reward", reward, tone="neutral", dash="dot"),
        _validated(training, axis, "validation", "right"),
    ]
    if second is not None:
        right = second.of_rollouts("right")
        traces.append(trace(second, axis, f"right rollouts, {second.name}", right, tone="second"))
        traces.append(_validated(second, axis, f"validation, {second.name}", "second"))
    note = (
        "Rollouts of an iteration are sampled for its own few questions, so that these lines go up and down by chance. "
        "Diamonds: the planner on held-apart tasks with its 95 % Wilson interval."
    )
    return Answer(
        "progress",
        "Is it getting better?",
        f"{best_words(training)}\n{_iteration_words(training, at)}",
        [trend(asked, axis, traces, "share right, mean reward")],
        [note, *_facts(training)],
        term="Rollout",
        choices=[along],
    )


# Beside what learned nothing


def standings(asked: Asked) -> Answer | None:
    """The start, the best and the last update beside the controls; None before the first validation."""
    course = shown(asked).course
    found = list(_standings(course))
    if not found:
        return None
    found.sort(key=lambda one: -(one.estimate.value or 0.0))
    best, other = (next((one for one in found if one.plain is plain), found[0]) for plain in (False, True))
    said = "; ".join(
        f"{one.name}: {share_words(one.estimate.value or 0.0, one.estimate.ci95 or (0.0, 1.0))}"
        for one in dict.fromkeys([best, other])
    )
    missing = isinstance(course, Lineage) and not course.controls
    notes: list[Block] = [
        "Controls are played at an evolution's end, unless they are switched off."
    ] * missing
    evolution = isinstance(course, Lineage)
    return Answer(
        "standings",
        f"Is it better than {'the controls' if evolution else 'what it began as'}?",
        f"{said[0].upper()}{said[1:]}.",
        [Estimates(found, "answered right, with 95 % interval")],
        [*notes, validated_on(course)],
        term="Control" if evolution else "Iteration",
    )


def _standings(course: Course) -> Iterator[Line]:
    """The start, the best validated and the last validated update, and the controls, which learned nothing."""
    measured = [place for place, one in enumerate(course.validations) if one]
    for place in dict.fromkeys(
        [*measured[:1], *([] if course.best is None else [course.best]), *measured[-1:]]
    ):
        one, index = course.validations[place], course.indices[place]
        which = {"start": index == 0, "best": place == course.best, "last": place == measured[-1]}
        words = ", ".join(word for word, holds in which.items() if holds)
        if one is not None:
            yield Line(f"{course.noun} {index} ({words})", estimate(one), Mark(), plain=index == 0)
    if isinstance(course, Lineage):
        for name, control in course.controls.items():
            if control.n:
                yield Line(control_words(name), estimate(control), plain=True)


def validated_on(course: Course) -> str:
    """What the validated accuracies are of."""
    sizes = [f"{one.n:,}" for one in course.validations if one]
    each = " or ".join(dict.fromkeys(sizes))
    of = f" of {one_line(course.tasks_words, 120)}" if course.plan else ""
    chosen = f"; the best of {len(sizes)} was chosen on these very tasks, so it flatters a little" * (
        len(sizes) > 1
    )
    return (
        f"Validated is the share of right answers on {each} validation tasks{of}, each played once, from which "
        f"nothing was learned{chosen}. In brackets the 95 % interval."
    )


# What it is, and what it took


def _facts(course: Lineage | Training) -> list[str]:
    """What it is, and what it took."""
    return [" · ".join(_kind(course)), " · ".join(_took(course))]


def _kind(course: Lineage | Training) -> Iterator[str]:
    yield one_line(course.learner_words, 30)
    if course.plan is not None:
        yield f"tasks {one_line(course.plan.tasks, 40)}"
    match course.plan:
        case EvolutionPlan() as plan:
            svf = f" with SVF {one_line(plan.svf, 20)}" if plan.svf else ""
            yield f"{one_line(plan.head, 20)} head{svf}"
            yield f"seed {plan.evolution.seed}"
        case TrainingPlan(learning=learning) as plan:
            stored = f"planner {one_line(plan.planner, 40)}"
            yield "a new pocket planner" if plan.planner == POCKET_POOL else stored
            yield f"{learning.questions} questions with {learning.rollouts} rollouts each"
            yield f"seed {learning.seed}"


def _took(course: Lineage | Training) -> list[str]:
    """Episodes, time with validation, and what was not asked for or read again."""
    last = course.updates[-1]
    per_second = f", {last.episodes / last.wall_s:,.0f} a second" if last.episodes and last.wall_s > 0 else ""
    facts = [f"{last.episodes:,} episodes in {duration(last.wall_s)}, with validation{per_second}"]
    if isinstance(course, Training):
        written = sum(one.written_tokens for one in course.stats)
        facts.append(f"{course.tokens[-1]:,} tokens of the pool, {written:,} written by the planner")
    shares = {"replies": saved_share(course, "calls", "calls_saved")}
    if isinstance(course, Lineage):
        shares["encodings"] = saved_share(course, "forwards", "decisions")
    saved = [f"{percent(share)} of {words}" for words, share in shares.items() if share is not None]
    return [*facts, f"{' and '.join(saved)} from cache"] if saved else facts


def duration(seconds: float) -> str:
    """How long something took, coarsely: `40 s`, `3.2 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def saved_share(course: Lineage | Training, spent: str, saved: str) -> float | None:
    """The share of the work that was not done again. `saved` is counted apart from `spent` for replies, and
    includes it for transcripts read. None in runs that did not count it."""
    done, counted = course.total(spent), course.total(saved)
    if done is None or counted is None:
        return None
    work = counted if saved == "decisions" else done + counted
    return max(0.0, 1 - done / work) if work else None
