"""A pool whose models reply from an outcome table: what they answered to the same question when somebody recorded it.

    Worker    the recorded reply. Of several samples each is drawn once in an episode, in an order by its seed.
    Verifier  the recorded verdict on the standing answer where the table has one; else its own recorded answer decides:
              it accepts when the grader calls that and the standing answer the same ("by agreement").
    Thinker   the recorded plan, where the table has plans; else the role cannot be played.

A row is paid once in an episode; what is used again is free and marked as reused. What this cannot show: a model that
reads what another wrote would answer otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np

from core.conduct.planners import frozen_workflow, reads_others
from core.conduct.prompts import WORDS, subtask_word, words_of
from core.draws import derive_seed
from core.episode import Ask, Failure, Grade, PendingVerdict, Recorded, Reply, Role, Task, Usage, Verdict
from core.errors import ConfigError, PoolError, TaskError
from core.outcomes.table import OutcomeTable, judges_of, plans_of
from core.play.drive import GradeMany
from core.play.ensembles import MajorityVote, MixtureOfAgents
from core.play.judging import final_verdicts
from core.play.policies import Policy, Pupil, innermost
from core.pool.pool import entry
from core.pool.spec import ModelSpec
from core.tasks.graders import grading_of

#: Graders that can say whether two answers are the same.
_COMPARABLE = ("exact", "number", "choice", "math", "code")


class RecordedPool:
    """The models of an outcome table. `table` is replied from."""

    def __init__(self, table: OutcomeTable) -> None:
        self.table = table
        card = table.card
        roles = [Role.WORKER.value]
        roles += [Role.THINKER.value] if card.plans else []
        roles += [Role.VERIFIER.value] if card.answers or card.judges else []
        has_row = table.first >= 0
        known = [task.id for task in table.tasks]
        self.specs = tuple(
            ModelSpec(
                name=name,
                provider="recorded",
                dialect="recorded",
                roles=tuple(roles),
                tasks=None if own.all() else frozenset(id for id, has in zip(known, own, strict=True) if has),
                repeats=card.samples == 1 and not card.plans,
                weights=card.digest,
                price_in=card.prices[name][0] if name in card.prices else None,
                price_out=card.prices[name][1] if name in card.prices else None,
            )
            for name, own in zip(card.models, has_row.T, strict=True)
        )
        self._slots = {name: slot for slot, name in enumerate(card.models)}
        self._by_name = {spec.name: spec for spec in self.specs}

    def check(self, tasks: Iterable[Task], policies: Iterable[Policy] = ()) -> None:
        """PoolError for a task of another set, ConfigError for a policy that needs what no table holds."""
        for task in tasks:
            self._place(task.question)
        for one in policies:
            if asked := getattr(one, "asked_model", ""):
                raise ConfigError(
                    f"{asked} replies from an outcome table, which holds no workflows: name a planner that is no model "
                    "of the pool, such as conductor:random or a checkpoint."
                )
            if hasattr(innermost(one), "encoder"):
                self.check_texts()
            if isinstance(one, Pupil) and (one.reads or "texts" in one.needs):
                self.check_texts(f"'{one.id}'")
            self._check_rows(one)

    def _check_rows(self, policy: Policy) -> None:
        name, most = self.table.card.name, self.table.card.samples
        needs = policy.needs if isinstance(policy, Pupil) else ()
        if "answers" in needs and not self.table.card.answers:
            raise ConfigError(
                f"The outcome table {name} says which replies are right and not what they answer, so that no two can "
                f"be compared as '{policy.id}' does: play a policy that chooses one model."
            )
        if "prices" in needs and not self.table.has_prices:
            raise ConfigError(
                f"The outcome table {name} does not say what its models cost, in money or in tokens, so '{policy.id}' "
                "cannot ask the cheapest first: leave :price out."
            )
        flow = frozen_workflow(innermost(policy))
        if isinstance(policy, MixtureOfAgents) or (flow is not None and reads_others(flow)):
            raise ConfigError(
                f"The outcome table {name} holds no reply of a model that was handed the others' answers, which "
                f"'{policy.id}' needs: play a vote of what they answered alone, such as vote."
            )
        steps = flow.subtasks if flow is not None else ("plan",) if "plans" in needs else ()
        self._check_steps(steps, policy.id)
        votes = policy.votes if isinstance(policy, MajorityVote) and policy.of_one_model else 1
        if max(votes, 2 if "samples" in needs else 1) > most:
            has = "one reply" if most == 1 else f"at most {most} replies"
            raise ConfigError(
                f"The outcome table {name} has {has} of a model to a task, too few for '{policy.id}': play a vote of "
                "several models, such as vote."
            )

    def _check_steps(self, subtasks: Sequence[str], name: str) -> None:
        """ConfigError where the table holds no replies for one of the steps of what policy `name` plays."""
        may, asked = words_of(self.specs), [subtask_word(subtask) for subtask in subtasks]
        lacks = next((word for word in asked if word in WORDS and word not in may), "")
        if lacks:
            what = "plans" if lacks == "plan" else "answers that can be compared"
            raise ConfigError(
                f"The outcome table {self.table.card.name} holds no {what}, which '{name}' needs: play "
                "conductor:random, whose steps are those that the table holds."
            )

    def check_texts(self, reader: str = "a coordinator") -> None:
        """ConfigError where the tasks have no questions that `reader` could read."""
        if not self.table.card.texts:
            raise ConfigError(
                f"The outcome table {self.table.card.name} has no texts of its questions, so {reader} has nothing to "
                "read: play it by policies that read none, such as single:* or random."
            )

    @cached_property
    def _by_question(self) -> dict[str, int]:
        return {task.question: place for place, task in enumerate(self.table.tasks)}

    @cached_property
    def _groups(self) -> dict[tuple[int, str], int]:
        """The group of each answer to each task; it is the same for equal texts."""
        numbers, answers = self.table.numbers, self.table.texts["answer"].to_pylist()
        tasks, groups = numbers["task"].tolist(), numbers["group"].tolist()
        return {
            (task, answer): group
            for task, answer, group in zip(tasks, answers, groups, strict=True)
            if answer is not None
        }

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index into asks, reply) in order; each is there at once."""
        for index, ask in enumerate(asks):
            yield index, self._reply(ask)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """The whole text as one piece, then the Reply."""
        reply = self._reply(ask)
        yield reply.text
        yield reply

    def _reply(self, ask: Ask) -> Reply:
        entry(self._by_name, ask.model)
        place, slot, name = self._place(ask.messages[-1].content), self._slots[ask.model], ask.model
        first, n = int(self.table.first[place, slot]), int(self.table.count[place, slot])
        if n == 0:
            message = f"The outcome table {self.table.card.name} has no reply of {name} to this task."
            return Reply("", finish_reason="error", error=Failure("infrastructure", message))
        sample = order_of(n, ask.seed, slot)[ask.sample % n]
        row, used = first + sample, ask.sample >= n
        own = Recorded(self.table.card.known_as, sample, self._answer(row))
        reply = Reply(
            self.table.texts["reply"][row].as_py(), usage=self._usage(row), latency_s=self._seconds(row)
        )
        reply = replace(reply.as_reused() if used else reply, recorded=own)
        if error := self.table.texts["error"][row].as_py():
            return replace(reply, finish_reason="error", error=Failure("model", error))
        match ask.role:
            case Role.THINKER:
                if plan := plans_of(self.table).get((place, slot), ""):
                    return replace(reply, text=plan, recorded=replace(own, answer=None))
                message = f"The outcome table {self.table.card.name} has no plan of {name} for this task."
                nobody = Usage(0, 0, 0.0)
                return Reply("", finish_reason="not_asked", usage=nobody, error=Failure("model", message))
            case Role.VERIFIER:
                return self._verdict(reply, own, place, slot, ask.judged)
            case Role.WORKER:
                return reply

    def _verdict(self, reply: Reply, own: Recorded, place: int, slot: int, judged: str | None) -> Reply:
        """The reply of a Verifier, with the verdict that it stands for."""
        if judged is not None and (written := judges_of(self.table).get((place, slot, judged))):
            verdict, text = Verdict(written[0]), written[1]
            return replace(reply, text=text or reply.text, recorded=replace(own, verdict=verdict))
        same = own.answer is not None and judged is not None and self._same(place, own.answer, judged)
        verdict = Verdict.ACCEPT if same else Verdict.REVISE
        return replace(reply, recorded=replace(own, verdict=verdict, by_agreement=True))

    def same(self, question: str, one: str, other: str) -> bool:
        """Whether the grader calls two answers to a question the same, which models of the table gave."""
        return self._same(self._place(question), one, other)

    def _same(self, place: int, one: str, other: str) -> bool:
        if one == other:
            return True
        mine, theirs = self._groups.get((place, one)), self._groups.get((place, other))
        if mine is not None and theirs is not None:
            return mine == theirs
        task = self.table.tasks[place]  # an answer that was written by hand
        if task.grader not in _COMPARABLE:
            return False
        with suppress(TaskError):
            return final_verdicts(grading_of([task])([Grade(replace(task, answer=one), other)]))[0]
        return False

    def _place(self, question: str) -> int:
        if (place := self._by_question.get(question)) is None:
            name = self.table.card.name
            raise PoolError(
                f"The outcome table {name} has no such question: recorded models answer its own tasks alone "
                f"(--tasks outcomes:{name})."
            )
        return place

    def _answer(self, row: int) -> str | None:
        answer: str | None = self.table.texts["answer"][row].as_py()
        return answer

    def _usage(self, row: int) -> Usage:
        toll = self.table.toll
        sent, written = (
            0 if np.isnan(n) else int(n) for n in (toll["tokens_in"][row], toll["tokens_out"][row])
        )
        cost = float(toll["cost"][row])
        return Usage(sent, written, None if np.isnan(cost) else cost)

    def _seconds(self, row: int) -> float:
        seconds = float(self.table.toll["seconds"][row])
        return 0.0 if np.isnan(seconds) else seconds


def recorded_grading(table: OutcomeTable, otherwise: GradeMany) -> GradeMany:
    """Grades the recorded answers of a table as it says, and others as `otherwise` does."""
    known = _grades(table)

    def grade(asked: Sequence[Grade]) -> Sequence[bool | Failure | PendingVerdict]:
        found = [known.get((one.task.id, one.answer)) for one in asked]
        unknown = [one for one, right in zip(asked, found, strict=True) if right is None]
        graded = iter(otherwise(unknown) if unknown else ())
        return [next(graded) if right is None else right for right in found]

    return grade


def _grades(table: OutcomeTable) -> dict[tuple[str, str], bool]:
    """Whether an answer to a task (by its id) is right, where the table says one and the same of it everywhere."""
    ids = [task.id for task in table.tasks]
    columns = (
        table.numbers["task"].tolist(),
        table.texts["answer"].to_pylist(),
        table.numbers["right"].tolist(),
    )
    known: dict[tuple[str, str], bool] = {}
    contradicted: set[tuple[str, str]] = set()
    for task, answer, right in zip(*columns, strict=True):
        if answer is not None and right >= 0:
            key = ids[task], answer
            if known.setdefault(key, bool(right)) != bool(right):
                contradicted.add(key)
    return {key: right for key, right in known.items() if key not in contradicted}


def order_of(samples: int, seed: int, slot: int) -> Sequence[int]:
    """In which order a model's samples of a task are drawn in an episode of this seed."""
    if samples == 1:
        return (0,)
    order: list[int] = (
        np.random.default_rng(derive_seed(("samples", seed, slot))).permutation(samples).tolist()
    )
    return order
