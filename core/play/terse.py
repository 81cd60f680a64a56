"""The terse dialect: what a pocket model is sent in each role, exactly as it was trained, and how it is read."""

from __future__ import annotations

import re

#: A negation with nothing between it and the end that begins a new clause.
_NEGATION = re.compile(
    r"(?:\b(?:not|never|cannot|no|without|nor|refuse|refused|unable|wrong to)|n['\u2019]t)\b"
    r"(?:(?!\b(?:so|and|but|therefore|thus|hence|then)\b)[^.!?,;:\n])*$",
    re.IGNORECASE,
)


def think_prompt(question: str) -> str:
    """Asks for a plan; the whole reply is one."""
    return f"think\n{question}"


def work_prompt(question: str, plan: str = "") -> str:
    """Asks for an answer, by a plan where there is one."""
    plan = _one_line(plan)
    return f"work\n{question}\nplan {plan}" if plan else f"work\n{question}"


def check_prompt(question: str, answer: str) -> str:
    """Asks for a verdict. Verdict words of others are in lower case: who repeats them has not given one."""
    prompt = f"check\n{question}\nanswer {_one_line(answer)}"
    return re.sub(r"ACCEPT|REVISE", lambda word: word[0].lower(), prompt)


def answer_reply(answer: str) -> str:
    """The reply that gives this answer."""
    return f"answer {answer}"


def read_answer(reply: str) -> str:
    """The answer in a Worker's reply; empty when there is none."""
    match = re.fullmatch(r"answer[ \t]+([^\n]+)", reply.strip())
    return match[1].strip() if match else ""


def read_verdict(reply: str) -> str:
    """The last word of a Verifier's reply, if it is a verdict, the only one and not negated; otherwise empty."""
    words = reply.split()
    verdicts = re.findall(r"(?<![A-Za-z])(?:ACCEPT|REVISE)(?![A-Za-z])", reply, re.IGNORECASE | re.ASCII)
    if len(verdicts) != 1 or words[-1] not in ("ACCEPT", "REVISE"):
        return ""
    return "" if is_negated(reply.rstrip().removesuffix(words[-1])) else words[-1]


def is_negated(before: str) -> bool:
    """Whether the words that stand before a verdict turn it into its opposite: "I do not", "we can't yet"."""
    return bool(_NEGATION.search(before))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines()).strip()
