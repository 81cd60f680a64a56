"""Recorded workflows of three planners and one policy without, whose answers and faults are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from core.conduct.planners import PromptedPlanner, planner_policy
from core.episode import Ask, Episode, EpisodeFinished, Failure, Task
from core.play.drive import drive_many
from core.play.policies import Policy, PolicyPerEpisode, RandomPolicy, new_episode
from core.tasks.graders import grade_many
from storage.recorder import record
from storage.store import Store
from tests.builders.pools import Line, ScriptedPool, specs
from tests.builders.stores import begin_run

MODELS = ("ann", "bob", "cid")
TASKS = [Task(f"t{i}", f"What is {i} plus 0?", str(i), "number", ("sum", "other")[i % 2]) for i in range(12)]
FIXED, RANDOM, ASKED = "conductor:fixed:solvers:ann+ann+bob+ann", "conductor:random", "conductor:prompted:cid"


def _lists(*models: int, reads: Sequence[Sequence[int]] | None = None) -> str:
    access = [list(one) for one in (reads or [[] for _ in models])]
    return f"model_id = {list(models)}\nsubtasks = {['Solve it'] * len(models)}\naccess_list = {access}"


#: What cid writes for each task, plan after plan; ann is right and bob is wrong.
PLANS: Mapping[str, Sequence[Line]] = {
    "t0": (_lists(0), "Nothing to change."),
    "t1": (_lists(1), _lists(0), _lists(0)),
    "t2": (_lists(0), *[_lists(0, reads=[[], []])] * 5),
    "t3": ("No idea.", _lists(0, 1, reads=[[], [0]]), "Fine as it is."),
    "t4": tuple([Failure("model", "too long")] * 5),
    "t5": (_lists(0), _lists(1, 1, reads=[[], [0]]), "Fine."),
}


class _Pool(ScriptedPool):
    """cid writes plans and nothing else; ann answers right, bob wrong. Steps are told the whole question."""

    def __init__(self, questions: Mapping[str, Task]) -> None:
        super().__init__(specs(MODELS, "general"), self._say)
        self._questions, self._plans = questions, defaultdict[str, list[tuple[object, int]]](list)

    def _say(self, ask: Ask) -> Line:
        words = "\n".join(message.content for message in ask.messages)
        task = next(task for question, task in self._questions.items() if question in words)
        if ask.model == "cid":
            asked = self._plans[ask.episode]
            if (ask.messages, ask.sample) not in asked:  # else it is asked again after a stop
                asked.append((ask.messages, ask.sample))
            return PLANS[task.id][asked.index((ask.messages, ask.sample))]
        return f"<answer>{task.answer if ask.model == 'ann' else 'nothing'}</answer>"


def begun_workflows() -> tuple[list[Episode], Policy, ScriptedPool]:
    """Episodes of the run r1, whoever decides each, and the pool: FIXED, RANDOM and the policy "random" on all tasks,
    five of them twice, and ASKED on those that it has plans for."""
    policies: dict[str, Policy] = {
        FIXED: planner_policy(FIXED, MODELS),
        RANDOM: planner_policy(RANDOM, ("ann", "bob")),
        ASKED: PromptedPlanner(MODELS, "cid", rounds=3),
        "random": RandomPolicy(("ann", "bob")),
    }
    begun: list[Episode] = []
    by_id: dict[str, Policy] = {}
    for name, policy in policies.items():
        tasks = [one for one in TASKS if one.id in PLANS] if name == ASKED else [*TASKS, *TASKS[:5]]
        for place, task in enumerate(tasks):
            begun.append(new_episode("r1", len(begun), task, policy, turns=9, seed=place, argmax=False))
            by_id[begun[-1].id] = policy
    each = PolicyPerEpisode("all", MODELS, by_id)
    return begun, each, _Pool({one.question: one for one in TASKS})


def record_workflows(store: Store) -> list[Episode]:
    """Play and record `begun_workflows`."""
    begin_run(store, "r1", "run", {})
    events = record(store, drive_many(*begun_workflows(), grade_many))
    whole = [one.episode for one in events if isinstance(one, EpisodeFinished)]
    store.runs.finish("r1")
    return whole
