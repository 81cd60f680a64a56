"""What models' replies lacked, by model and loudly where it is much, and which calls had to be repeated."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ui.cli.console import percent, print_table, printable, say, tell

if TYPE_CHECKING:
    from core.pool.spec import ModelSpec
    from storage.analysis.reply_faults import FlaggedTurns
_SHORTENED = 'any("prompt_shortened" in turn.flags)'
#: The turns with each kind of lapse, in the filter language.
WHERE = {
    "no answer": 'any("no_answer" in turn.flags)',
    "no plan": 'any("no_suggestion" in turn.flags)',
    "no verdict": 'any("verdict_unreadable" in turn.flags)',
    "cut": 'any("truncated" in turn.flags)',
    "unknown end": 'any("unknown_finish" in turn.flags)',
    "unasked tool": 'any("unasked_tool_call" in turn.flags)',
    "refused": 'any("refused" in turn.flags)',
    "failed": 'any("model_error" in turn.flags and "refused" not in turn.flags)',
}


def tell_lapses(
    groups: Iterable[FlaggedTurns], specs: Sequence[ModelSpec], run_id: str, *, recorded: bool = True
) -> None:
    """Tell what could not be read in the replies of a run, if anything. `recorded`: its episodes are stored, and can be
    read."""
    from storage.analysis.reply_faults import KINDS, LOUD, cut_transcripts, reply_faults, shortened_prompts

    groups = list(groups)
    # That a pocket specialist cannot play a role is part of its world, and no setting mends it.
    mendable = {spec.name for spec in specs if spec.provider != "pocket"}
    found = [one for one in reply_faults(groups) if one.any]
    if found:
        tell()
        tell("What replies lacked, as a share of the turns in which they could:", "bold")
        print_table(
            ["model", *(f">{kind}" for kind in KINDS)],
            [
                (one.model, *(percent(share.value) if share.k else "" for share in one.shares.values()))
                for one in found
            ],
        )

    def read_some(where: str) -> str:
        command = f"trinity episodes --run {run_id} --where '{where}'"
        return f"Read some: {command}" if recorded else "Keep some to read by --record share"

    for one in found:
        for kind in one.loud if one.model in mendable else ():
            say(
                f"Warning: {printable(one.model)}, {kind}: {one.shares[kind].k} of {one.shares[kind].n} turns, more "
                f"than {percent(LOUD)}. {read_some(WHERE[kind])}"
            )
    for model, share in shortened_prompts(groups).items():
        say(
            f"Warning: {printable(model)} was sent a shortened transcript in {share.k} of {share.n} turns, as its "
            f"window holds no more. {read_some(_SHORTENED)}"
        )
    if (cut := cut_transcripts(groups)).k:
        say(
            f"Warning: the encoder's window cut the transcript in {cut.k} of {cut.n} turns, so the coordinator did "
            "not see all of it. Name an encoder with a longer window by --encoder."
        )


#: What a failed try says of itself -> how the summary calls it.
_REASONS = (
    (re.compile(r"answered (\d{3} [A-Za-z ]+)"), None),
    (re.compile("cannot be reached"), "no connection"),
    (re.compile("broke off in the middle"), "an answer that broke off"),
    (re.compile("cannot be read"), "an unreadable answer"),
)
_MODEL = re.compile(r"Model \\?'([^'\\]+)")


@contextmanager
def retry_summary() -> Iterator[None]:
    """Keep retries (stamina's records) quiet while the block runs; at its end a line for each model that was asked
    again says how often and why."""
    causes: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        causes.append(str(record.__dict__.get("stamina.caused_by", "")))
        return False

    logger = logging.getLogger("stamina")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
        counted: dict[str, Counter[str]] = {}
        for cause in causes:
            model = _MODEL.search(cause)
            counted.setdefault(model[1] if model else "a model", Counter())[_reason(cause)] += 1
        for name, reasons in sorted(counted.items()):
            told = ", ".join(f"{n} after {reason}" for reason, n in reasons.most_common())
            say(f"{printable(name)} was asked again {reasons.total()} times: {told}.")


def _reason(cause: str) -> str:
    for pattern, words in _REASONS:
        if found := pattern.search(cause):
            return words or found[1].strip()
    return "another fault"
