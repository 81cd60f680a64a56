"""Seven models on a loopback server that write as real ones do, and a server that knows which of them was right.

Each is good at one family of tasks and weak at the others, keeps to the asked form most of the time, and takes its
time. What a model says is decided by the request alone, its seed included. The server finds role, question and tag of
the verdict wherever they stand in the messages.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.play.chat import NOTE
from tests.builders.own_tasks import Exercise
from tests.core.pool.faulty_server import (
    HANG_UP,
    Answer,
    Request,
    chat,
    events,
    fail,
    respond,
    stream_head,
)

KEY = "sk-own-models-4f1c9a27e0b35d68"
KEY_VARIABLE = "OWN_MODELS_KEY"
#: Tokens as this server counts them.
CHARS_A_TOKEN = 4
#: Of the calls to a faulty server, the hundredths that each fault happens to.
FAULTS = {"500": 1, "503": 2, "cut": 2, "not JSON": 1, "drip": 1, "hang": 0.3}
#: So many seconds' worth of its permitted requests a server takes at once.
BURST_S = 0.2
#: Of a Verifier's judgements, and of a Worker's answers outside the own family of a model, the share that is right.
JUDGES_RIGHT, OUTSIDE = 0.85, 0.4


@dataclass(frozen=True, slots=True)
class Model:
    """One model: the family that it is good at, how often it keeps to the asked form, its prices in USD per million
    tokens, the least and the most seconds it takes, and how it thinks: not at all, in its reply or beside it."""

    name: str
    family: str
    obeys: float
    price_in: float
    price_out: float
    seconds: tuple[float, float]
    thinks: str = ""
    skill: float = 0.92


MODELS = (
    Model("auriga", "algebra", 0.98, 2.5, 10.0, (0.2, 0.5), "in the reply"),
    Model("bootes", "shop", 0.95, 1.25, 5.0, (0.1, 0.4)),
    Model("cygnus", "science", 0.9, 1.0, 4.0, (0.1, 0.3)),
    Model("dorado", "strings", 0.85, 0.8, 3.2, (0.1, 0.4), "beside the reply"),
    Model("eridanus", "algebra", 0.8, 0.6, 2.4, (0.05, 0.25), "in the reply", 0.8),
    Model("fornax", "shop", 0.75, 0.5, 2.0, (0.05, 0.2), "", 0.8),
    Model("grus", "science", 0.7, 0.3, 1.2, (0.05, 0.15), "", 0.8),
)


#: Model, texts of the messages, and seed.
Asked = tuple[str, tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Call:
    """One request: when it came, how long it took, and what was answered. `asked` are model, texts and seed; `right`:
    whether a Worker's answer, or a Verifier's judgement, is; `readable`: whether its point can be told at all."""

    at: float
    seconds: float
    model: str
    role: str
    question: str
    asked: Asked
    text: str
    right: bool | None
    readable: bool
    tokens_in: int
    tokens_out: int
    fault: str = ""

    @property
    def answered(self) -> bool:
        """Whether the answer was sent whole, if slowly."""
        return self.fault in ("", "drip")

    @property
    def cost_usd(self) -> float:
        """What the server bills: whole answers."""
        model = next(one for one in MODELS if one.name == self.model)
        cost = (self.tokens_in * model.price_in + self.tokens_out * model.price_out) / 1e6
        return cost if self.answered else 0.0


@dataclass
class Team:
    """What the server answers (for `faulty_server`) and what it knows. `per_second`: the requests that it permits;
    `faulty`: whether it also fails in every way that servers do."""

    tasks: Sequence[Exercise]
    per_second: float
    faulty: bool = False
    calls: list[Call] = field(default_factory=list)
    _times: Counter[Asked] = field(default_factory=Counter)
    _free_from: float = 0.0

    def __call__(self, request: Request) -> Answer:
        """Answer one request, and take down what was answered."""
        texts = tuple(message["content"] for message in request.body["messages"])
        asked = (request.body["model"], texts, request.body["seed"])
        self._times[asked] += 1
        now, dice = time.monotonic(), random.Random(f"{asked}/{self._times[asked]}")
        fault = self._refused(now, dice) or (self._fault(dice) if self.faulty else "")
        call = self._answered(asked, now, fault)
        self.calls.append(call)
        return self._sent(call, request.body.get("stream", False), dice)

    def _answered(self, asked: Asked, now: float, fault: str) -> Call:
        """What the model says, whatever then happens to it on its way."""
        name, texts, _ = asked
        dice, prompt = random.Random(str(asked)), "\n".join(texts)
        model = next(one for one in MODELS if one.name == name)
        role, task = role_in(prompt), self._task_in(prompt)
        written = _Writer(model, task, dice)
        right, readable = None, True
        if role == "Worker":
            advised = "<suggestion>" in prompt
            skill = model.skill if task.family == model.family else OUTSIDE + 0.15 * advised
            right = dice.random() < skill
            text = written.work(right)
        elif role == "Verifier":
            right = dice.random() < JUDGES_RIGHT
            text = written.verdict(self._latest_is_right(task, prompt) == right, tag_in(prompt))
        else:
            text = written.plan()
            readable = "<suggestion>" in text
        tokens_in, tokens_out = len(prompt) // CHARS_A_TOKEN, len(text) // CHARS_A_TOKEN
        least, most = model.seconds
        seconds = least + (most - least) * min(1.0, tokens_out / 1500)
        return Call(
            *(now, seconds, name, role, task.question, asked),
            *(text, right, readable, tokens_in, tokens_out, fault),
        )

    def _sent(self, call: Call, stream: bool, dice: random.Random) -> Answer:
        usage = {"prompt_tokens": call.tokens_in, "completion_tokens": call.tokens_out}
        match call.fault:
            case "429":
                return fail(429, "Too many requests")
            case "429 with Retry-After":
                return fail(429, "Too many requests", Retry_After=f"{BURST_S}")
            case "500" | "503":
                return (call.seconds / 4, *fail(int(call.fault), "The engine is overloaded"))
            case "hang":
                return (30.0, *HANG_UP)
            case "not JSON":
                return (call.seconds, respond(b'{"choices": [{"message": {"content": NaN'))
        beside = any(one.name == call.model and one.thinks == "beside the reply" for one in MODELS)
        message = {"reasoning_content": _THINKING} if beside else {}
        if stream:
            pieces = re.findall(r"\S+\s*|\s+", call.text)
            data = stream_head() + events(*pieces, usage=usage)
        else:
            data = respond(chat(call.text, usage=usage, **message), kept=call.fault == "")
        if call.fault == "cut":
            return (call.seconds, data[: dice.randrange(len(data) // 2, len(data) - 20)])
        if call.fault == "drip":
            step = len(data) // 8 + 1
            return [part for at in range(0, len(data), step) for part in (0.1, data[at : at + step])]
        return (call.seconds, data)

    def _refused(self, now: float, dice: random.Random) -> str:
        """Too many requests: a bucket that fills at the permitted rate."""
        if self._free_from > now + BURST_S:
            return dice.choice(("429", "429 with Retry-After"))
        self._free_from = max(self._free_from, now) + 1 / self.per_second
        return ""

    def _fault(self, dice: random.Random) -> str:
        drawn = 100 * dice.random()
        for fault, hundredths in FAULTS.items():
            drawn -= hundredths
            if drawn < 0:
                return fault
        return ""

    def _task_in(self, prompt: str) -> Exercise:
        """The exercise whose question stands in the prompt."""
        return next(one for one in (*self.tasks, ROLE_CHECK) if one.question in prompt)

    def _latest_is_right(self, task: Exercise, prompt: str) -> bool:
        """Whether the Worker that stands last in the prompt was right; an answer that nobody here gave is."""
        said = [one for one in self.calls if one.role == "Worker" and one.question == task.question]
        places = {prompt.rfind(seen(one.text)): one.right for one in said if seen(one.text)}
        return bool(places[max(places)]) if max(places, default=-1) >= 0 else True


#: The question of `trinity pool check --roles`.
ROLE_CHECK = Exercise(
    "shop",
    "number",
    "How much is 17 + 25?",
    ("42",),
    ("41",),
    ("Add the tens first, then the ones: $17 + 25 = 42$.",),
)


def role_in(prompt: str) -> str:
    """The role that a model is asked to be, by the prompt for a task or for a conversation."""
    for role in ("Thinker", "Worker", "Verifier"):
        if f"you are the {role}" in prompt:
            return role
    note = prompt.rpartition(NOTE)[2] if NOTE in prompt else ""
    if "VERDICT-" in note:
        return "Verifier"
    return "Thinker" if "Plan the next reply" in note else "Worker"


def tag_in(prompt: str) -> str:
    """The tag of the asked verdict: it is offered twice in a row, in quoted verdicts it is not."""
    found = re.search(r"VERDICT-(\w+): ACCEPT\s+VERDICT-\1: REVISE", prompt)
    assert found is not None
    return found[1]


def seen(text: str) -> str:
    """A reply as others see it: without thinking."""
    return text.rpartition("</think>")[2].strip()


_THINKING = "The task is clear. First what is given, then what is asked, then the work itself."

_REMARKS = (
    "Let us take this one step at a time and check each step before going on.",
    "Before computing anything, note what is given and what is asked.",
    "This is a standard problem, but it is easy to slip in the last step, so the work is written out in full.",
    "We can sanity-check the magnitude: the result should neither be tiny nor enormous.",
    "Recall that for real numbers $a$ and $b$ we have $(a + b)^2 = a^2 + 2ab + b^2$; it is not needed here, though.",
    "Substituting back into the original statement confirms that nothing was lost on the way.",
    "An alternative route would be to work backwards from each candidate, which gives the same outcome.",
    "The answer is plausible, since each step can be undone.",
    "One might be tempted to stop here. However, the question asks for something slightly different.",
    "Note: units have been kept consistent throughout (no conversion is necessary).",
    "Is the answer unique? Yes: no step had a choice in it.",
    "For completeness, here is the same argument in words. We start from the data, apply one rule at a time, and "
    "never use anything that was not given.",
)
_HEADINGS = ("## Understanding the problem", "### Step-by-step solution", "**Approach**", "### Verification")
_CLOSING = ("Let me know if you would like to see another way!", "I hope this helps.", "*Checked twice.*")


@dataclass(frozen=True, slots=True)
class _Writer:
    """A model at work on an exercise: 200 to 1,500 tokens of prose, with its point in the asked form or in another."""

    model: Model
    task: Exercise
    dice: random.Random

    def plan(self) -> str:
        """A Thinker's reply; one that does not keep to the form has no advice that can be told from the rest."""
        advice = "Write down what is given, do the steps in this order, and check the last one by hand."
        if self.dice.random() < self.model.obeys:
            return self._prose(f"<suggestion>{advice}</suggestion>")
        return self._prose(f"**Suggestion:** {advice}")

    def work(self, right: bool) -> str:
        """A Worker's reply with an answer that is right, or one that is wrong."""
        answer = self.dice.choice(self.task.right if right else self.task.wrong)
        if self.dice.random() < self.model.obeys:
            return self._prose(f"<answer>{answer}</answer>")
        bare = answer.strip("$")
        forms = [
            f"$$\\boxed{{{bare}}}$$",
            f"So the result is $\\boxed{{{bare}}}$.",
            f"The answer is {answer}",
            f"**Final answer:** {answer}",
            f"## Answer\n\n{answer}",
            f"<answer>{answer}",
            f"<answer>{answer}</answer>\n\n{self.dice.choice(_CLOSING)}",
            f"<answer>\n{answer}\n</answer>",
        ]
        if self.task.grader == "number":
            forms.append(f"#### {answer}")
        if self.task.grader == "choice":
            forms.append(
                f"**{answer.strip('*(')[0]}**" if answer.strip("*(")[1:2] in ("", ")", ".") else forms[0]
            )
        return self._prose(self.dice.choice(forms))

    def verdict(self, accept: bool, tag: str) -> str:
        """A Verifier's reply."""
        word = "ACCEPT" if accept else "REVISE"
        line = f"VERDICT-{tag}: {word}"
        if self.dice.random() >= self.model.obeys:
            reason = "every step holds" if accept else "the last step does not hold"
            line = self.dice.choice(
                (
                    f"**{line}**",
                    f'"{line}"',
                    f"{line} because {reason}.",
                    f"VERDICT-{tag}: **{word}**",
                    f"### {line}",
                    f"```\n{line}\n```",
                    f"- {line}",
                    f"VERDICT-{tag}\uff1a{word}",
                )
            )
        return self._prose(line)

    def _prose(self, point: str) -> str:
        """The work around the point."""
        parts = [self.dice.choice(_HEADINGS), *self.task.steps]
        wanted = CHARS_A_TOKEN * self.dice.choice((200, 300, 400, 600, 900, 1400))
        while sum(map(len, parts)) < wanted:
            parts.insert(self.dice.randrange(len(parts) + 1), self.dice.choice((*_REMARKS, *_HEADINGS)))
        thinking = ""
        if self.model.thinks == "in the reply":
            draft = self.dice.choice((*self.task.right, *self.task.wrong))
            thinking = f"<think>\n{_THINKING} Perhaps <answer>{draft}</answer>? No, wait.\n</think>\n\n"
        return thinking + "\n\n".join((*parts, point))
