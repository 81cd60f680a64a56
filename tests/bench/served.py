"""What `trinity tune` chooses, served, against the best single model asked directly: the same test questions, paired.

    trinity bench served
    trinity bench served --recorded FOLDER --encoder smollm2

Without a folder seven local models answer (`tests.builders.own_models`): they are tuned on tasks of four families, and
questions that nothing was tuned on are asked. With a folder of MMLU-Pro's published model_outputs_*.zip the models are
those that were recorded there: a local server says what each of them wrote, `trinity tune --outcomes` learns from the
evolve and validation splits of the table, and questions of its test split are asked. Tokens are reckoned by length and
money by PRICES. An answer is right if the model's own reply is, by the local models' server, or by the table.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, TypeVar

import httpx
import numpy as np

from core.analysis.metrics import paired_score_interval, wilson_interval
from core.outcomes.build import add_table
from core.outcomes.table import OutcomeTable
from core.play.chat import NOTE
from core.pocket.tasks import split_of
from core.tasks.sets import OUTCOME_SPLITS, load_tasks
from tests.bench._frame import SERVE, Figures, percentile, run, say
from tests.browsing import environment, serving
from tests.builders.own_models import CHARS_A_TOKEN, MODELS, role_in, seen, tag_in
from tests.core.pool.faulty_server import Answer, Request, chat, faulty_server, respond
from tests.journeys.engineer import Engineer, engineer
from ui.runs import wiring

#: What the recorded models cost, in USD per million tokens sent and written; of a model that is not here, the last.
PRICES: Mapping[str, tuple[float, float]] = {
    "gemini-1.5-pro-002": (1.25, 5.0),
    "gemini-1.5-flash-002": (0.075, 0.3),
    "DeepSeek-Coder-V2": (0.14, 0.28),
    "Meta-Llama-3_1-70B-Instruct": (0.88, 0.88),
    "Meta-Llama-3_1-8B-Instruct": (0.18, 0.18),
    "Phi-3-mini-4k-instruct": (0.1, 0.1),
    "jamba-1.5-large": (2.0, 8.0),
    "mathstral-7B": (0.25, 0.25),
    "": (1.0, 1.0),
}
#: The tiers that `trinity tune` writes, and below which name the table lies that is tuned on.
TIERS, TABLE = ("trinity", "trinity-ultra"), "published"
#: No ceiling that is met, in USD: the models are free.
MOST_USD = 10_000
#: Of a task, whether a text is a right answer; None for a text that no model wrote.
Right = Callable[[str, str], bool | None]
T = TypeVar("T")


def measure(
    recorded: Annotated[str, "a folder of MMLU-Pro's model_outputs_*.zip; left out: seven local models"] = "",
    questions: Annotated[int, "test questions"] = 100,
    validation: Annotated[int, "validation tasks of tune"] = 200,
    episodes: Annotated[int, "episodes of the evolution; 0: none"] = 2000,
    turns: Annotated[int, "turn budget of a coordinator"] = 5,
    encoder: Annotated[str, "pocket, or an encoder that was added"] = "pocket",
    each: Annotated[int, "tasks of each family of the local models, at most about 150"] = 150,
    per_second: Annotated[float, "requests that the local models' server permits"] = 100.0,
    tasks: Annotated[int, "questions of the recorded table, over all splits; 0: all"] = 3000,
    at_once: Annotated[int, "questions at a time"] = 4,
) -> Figures:
    """Tune, serve what was chosen, and ask the same questions of the tiers and of the best single model."""
    added = wiring.data_folder() / "encoders" / encoder
    tuning = ["--validation", validation, "--episodes", episodes, "--turns", turns, "--max-cost", MOST_USD]
    reads = ["--encoder", added if added.is_dir() else encoder]
    if not recorded:
        return _own(questions, [*tuning, *reads], reads, each, per_second, at_once)
    zips = sorted(Path(recorded).glob("model_outputs_*.zip"))
    if not zips:
        return {"skipped": f"{recorded} holds no model_outputs_*.zip of MMLU-Pro"}
    return _recorded(zips, questions, [*tuning, *reads], reads, tasks, at_once)


def _own(
    n: int, tuning: Sequence[object], reads: Sequence[object], each: int, per_second: float, at_once: int
) -> Figures:
    """The figures of seven local models."""
    with (
        tempfile.TemporaryDirectory() as folder,
        engineer(Path(folder), each=each, per_second=per_second) as me,
    ):
        began = time.monotonic()
        pool = ("--pool", "pool.toml")
        command = ("tune", *pool, "--tasks", "tasks.jsonl", *tuning, "--write", "tiers.toml", "--json")
        said = me.trinity(*command)
        if said.code:
            raise SystemExit(said.err)
        tuned = Tuned.of(said.json, time.monotonic() - began)
        say(f"tune took {tuned.seconds:.0f} s and chose {tuned.chosen}")
        asked = [task.question for task in load_tasks(str(me.folder / "tasks.jsonl"), "test", n, 0)]
        prices = {one.name: (one.price_in, one.price_out) for one in MODELS}
        direct = _ask_all(me.server.url, tuned.single, asked, at_once, prices[tuned.single])
        with me.serving("serve", *pool, *reads, "--config", "tiers.toml", "--max-cost", MOST_USD) as address:
            served = {tier: _ask_all(address, tier, asked, at_once) for tier in TIERS}
        return tuned.figures() | _compared(asked, direct, served, _right_of_team(me))


def _right_of_team(me: Engineer) -> Right:
    """Whether an answer is right, as the server of the local models knows."""
    known: dict[str, dict[str, bool]] = {}
    for call in me.team.calls:
        if call.role == "Worker" and call.right is not None:
            known.setdefault(call.question, {})[seen(call.text)] = call.right
    return lambda question, text: _looked_up(known.get(question, {}), text)


def _recorded(
    zips: Sequence[Path],
    n: int,
    tuning: Sequence[object],
    reads: Sequence[object],
    tasks: int,
    at_once: int,
) -> Figures:
    """The figures of recorded models."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        book = Book(_table(zips, place / "trinity-inspector", tasks))
        say(
            f"the table has {book.table.card.tasks} questions that all {len(book.table.card.models)} answered"
        )
        with faulty_server(book.answer) as behind:
            (place / "pool.toml").write_text(_pool(behind.url, book.table.card.models))
            began = time.monotonic()
            command = ["tune", "--pool", "pool.toml", "--outcomes", TABLE, *tuning]
            tuned = Tuned.of(_trinity(place, *command, "--write", "tiers.toml", "--json"), 0.0)
            tuned = Tuned(**{**asdict(tuned), "seconds": time.monotonic() - began})
            say(f"tune took {tuned.seconds:.0f} s and chose {tuned.chosen}")
            every = [task.question for task in book.table.tasks]
            test = _spread([one for one in every if split_of(one, OUTCOME_SPLITS) == "test"], n)
            direct = _ask_all(behind.url, tuned.single, test, at_once, _price(tuned.single))
            options = map(
                str, ("--pool", "pool.toml", *reads, "--config", "tiers.toml", "--max-cost", MOST_USD)
            )
            store = place / "trinity.db"
            with serving([*SERVE, *options, "--port"], place, store, health="/healthz") as address:
                served = {tier: _ask_all(f"{address}/v1", tier, test, at_once) for tier in TIERS}
        return tuned.figures() | _compared(test, direct, served, book.right)


def _table(zips: Sequence[Path], data: Path, most: int) -> OutcomeTable:
    """So many questions of the published table that all models answered, with what the answers cost by PRICES."""
    whole = add_table("whole", zips, data)
    models, draft = whole.card.models, data / "draft"
    draft.mkdir()
    answered = _spread(np.flatnonzero((whole.first >= 0).all(axis=1)).tolist(), most)
    with (draft / "tasks.jsonl").open("w") as tasks, (draft / "outcomes.jsonl").open("w") as outcomes:
        for place in answered:
            task = whole.tasks[place]
            line = {"task": task.id, "question": task.question, "answer": task.answer}
            tasks.write(json.dumps(line | {"grader": task.grader, "family": task.family}) + "\n")
            for slot, model in enumerate(models):
                reply = whole.texts["reply"][int(whole.first[place, slot])].as_py()
                sent, written = _tokens(task.question), _tokens(reply)
                price = _price(model)
                cost = (sent * price[0] + written * price[1]) / 1e6
                row = {"task": task.id, "model": model, "reply": reply, "tokens_in": sent}
                outcomes.write(json.dumps(row | {"tokens_out": written, "cost": cost}) + "\n")
    return add_table(TABLE, [draft], data, kind="own")


def _spread(items: list[T], n: int) -> list[T]:
    """So many of them, from the first to the last; all where there are not more, or `n` is 0."""
    return [items[k * len(items) // n] for k in range(n)] if 0 < n < len(items) else items


class Book:
    """A server that answers as the models of a table did: as Workers they say what they wrote, as Verifiers they accept
    what their own answer is the same as, and as Thinkers they say nothing of use."""

    def __init__(self, table: OutcomeTable) -> None:
        self.table = table
        self._slots = {model: slot for slot, model in enumerate(table.card.models)}
        self._places = {task.question: place for place, task in enumerate(table.tasks)}
        self._group, self._right = table.of_first("group"), table.over_samples("right")

    def said(self, place: int, slot: int) -> str:
        """What a model wrote about a question."""
        return str(self.table.texts["reply"][int(self.table.first[place, slot])].as_py())

    def right(self, question: str, text: str) -> bool | None:
        """Whether a text is a right answer, by the table."""
        place = self._places[question]
        known = {
            self.said(place, slot).strip(): bool(self._right[place, slot]) for slot in self._slots.values()
        }
        return _looked_up(known, text)

    def answer(self, request: Request) -> Answer:
        """The answer to a request, at once."""
        messages = request.body["messages"]
        prompt = "\n".join(one["content"] for one in messages)
        place = self._places[messages[0]["content"].partition(NOTE)[0].strip()]
        slot = self._slots[request.body["model"]]
        match role_in(prompt):
            case "Worker":
                text = self.said(place, slot)
            case "Verifier":
                standing = next(one["content"] for one in reversed(messages) if one["role"] == "assistant")
                others = [
                    other
                    for other in self._slots.values()
                    if self.said(place, other).strip() == standing.strip()
                ]
                same = bool(others) and self._group[place, others[0]] == self._group[place, slot] >= 0
                text = f"VERDICT-{tag_in(prompt)}: {'ACCEPT' if same else 'REVISE'}"
            case _:
                text = "Go through the options one by one."
        usage = {"prompt_tokens": _tokens(prompt), "completion_tokens": _tokens(text)}
        return (respond(chat(text, usage=usage), kept=True),)


def _pool(url: str, models: Sequence[str]) -> str:
    return "".join(
        f'[[model]]\nname = "{one}"\nbase_url = "{url}"\nmax_tokens = 4000\nconcurrency = 16\n'
        f"price_in = {_price(one)[0]}\nprice_out = {_price(one)[1]}\n"
        for one in models
    )


def _price(model: str) -> tuple[float, float]:
    return PRICES.get(model, PRICES[""])


def _tokens(text: str) -> int:
    return max(1, len(text) // CHARS_A_TOKEN)


def _trinity(place: Path, *command: object) -> Any:
    """The JSON of a command in a folder of its own; its other words are passed on."""
    words = [*SERVE[:-1], *map(str, command)]
    own = environment(place) | {"TRINITY_STORE": str(place / "trinity.db")}
    done = subprocess.run(words, cwd=place, env=own, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What `trinity tune` found: the policy, why, the best single model by validation, all candidates, and how long it
    took."""

    chosen: str
    why: str
    single: str
    candidates: Sequence[Mapping[str, Any]]
    seconds: float

    @classmethod
    def of(cls, told: Mapping[str, Any], seconds: float) -> Tuned:
        """From its JSON."""
        singles = [one for one in told["candidates"] if one["policy"].startswith("single:")]
        best = max(singles, key=lambda one: (one["right"] / one["n"], -(one["cost_usd"] or 0.0)))
        single = best["policy"].removeprefix("single:")
        return cls(told["chosen"], told["why"], single, told["candidates"], seconds)

    def figures(self) -> Figures:
        """The same, of each candidate its accuracy on validation tasks and what a question costs."""
        shown = {
            one["policy"]: {
                "accuracy": round(one["right"] / one["n"], 4),
                "n": one["n"],
                "cost_usd": one["cost_usd"],
                "difference": one["difference"],
            }
            for one in self.candidates
        }
        return {
            "chosen": self.chosen,
            "why": self.why,
            "single": self.single,
            "tune_seconds": round(self.seconds, 1),
            "validation": shown,
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one question: the text (None: refused or failed), seconds, USD, calls, who answered."""

    text: str | None
    seconds: float
    usd: float = 0.0
    calls: int = 0
    by: str = ""
    policy: str = ""
    error: str = ""


def _ask_all(
    url: str, model: str, asked: Sequence[str], at_once: int, price: tuple[float, float] | None = None
) -> list[Seen]:
    """Each question, asked of a tier, or, with its `price`, of a model."""
    with httpx.Client(timeout=300.0, trust_env=False) as http, ThreadPoolExecutor(at_once) as threads:

        def ask(numbered: tuple[int, str]) -> Seen:
            number, question = numbered
            messages = [{"role": "user", "content": question}]
            body = {"model": model, "messages": messages, "seed": number}
            began = time.monotonic()
            try:
                answer = http.post(f"{url}/chat/completions", json=body)
                took, told = time.monotonic() - began, answer.json()
            except (httpx.HTTPError, ValueError) as error:
                return Seen(None, time.monotonic() - began, error=repr(error))
            if answer.status_code != 200:
                return Seen(None, took, error=str(told)[:300])
            text, usage = told["choices"][0]["message"]["content"] or "", told["usage"]
            if price is not None:
                usd = (usage["prompt_tokens"] * price[0] + usage["completion_tokens"] * price[1]) / 1e6
                return Seen(text, took, usd, 1, model)
            trace = told["trinity"]
            by = next((one["model"] for one in reversed(trace["turns"]) if one["answered"]), "")
            return Seen(text, took, trace["cost_usd"] or 0.0, len(trace["turns"]), by, trace["policy"])

        return [*threads.map(ask, enumerate(asked))]


def _looked_up(known: Mapping[str, bool], text: str) -> bool | None:
    """Whether the reply is right that a text is, or is a part of; None where it is of none."""
    text = seen(text)
    if text in known:
        return known[text]
    return next((is_right for whole, is_right in known.items() if text and text in whole), None)


def _compared(
    asked: Sequence[str], direct: Sequence[Seen], served: Mapping[str, Sequence[Seen]], right: Right
) -> Figures:
    """The figures of each side, and of each tier the paired difference to the model that was asked directly."""
    sides = {"direct": direct, **served}
    grades = {
        name: [_grade(q, one, right) for q, one in zip(asked, of, strict=True)] for name, of in sides.items()
    }
    found: Figures = {}
    for name, of in sides.items():
        solved = sum(bool(one) for one in grades[name])
        low, high = wilson_interval(solved, len(of))
        found[name] = {
            "policy": next((one.policy for one in of if one.policy), ""),
            "n": len(of),
            "accuracy": round(solved / len(of), 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "failed": sum(one.text is None for one in of),
            "not_a_reply_of_a_model": sum(one is None for one in grades[name]),
            "seconds_p50": percentile(50, [one.seconds for one in of], 3),
            "usd_mean": round(mean(one.usd for one in of), 7),
            "calls_mean": round(mean(one.calls for one in of), 2),
            "answered_by": dict(Counter(one.by for one in of if one.by).most_common()),
        }
        if errors := Counter(one.error for one in of if one.error):
            found[name]["errors"] = dict(errors.most_common(3))
        if name != "direct":
            pairs = Counter((bool(a), bool(b)) for a, b in zip(grades["direct"], grades[name], strict=True))
            table = [pairs[pair] for pair in ((True, True), (True, False), (False, True), (False, False))]
            found[name]["beside_direct"] = asdict(paired_score_interval(*table))
    return found


def _grade(question: str, one: Seen, right: Right) -> bool | None:
    return False if one.text is None else right(question, one.text)


if __name__ == "__main__":
    run(measure)
