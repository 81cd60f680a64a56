"""The terse dialect: what a pocket model is sent in each role, exactly as it was trained, and how it is read."""

from __future__ import annotations

import re


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
    """The last word of a Verifier's reply, if it is a verdict and the only one; otherwise empty."""
    words = reply.split()
    verdicts = re.findall(r"(?<![A-Za-z])(?:ACCEPT|REVISE)(?![A-Za-z])", reply, re.IGNORECASE | re.ASCII)
    return words[-1] if len(verdicts) == 1 and words[-1] in ("ACCEPT", "REVISE") else ""


def _one_line(text: str) -> str:
    return " ".join(text.splitlines()).strip()
