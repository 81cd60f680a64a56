"""What several checkpoints make of the same turns, in words, for every door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.analysis.agreement import Agreement
from core.episode import ROLE_ORDER
from storage.analysis.policy_diff import HAS_LOGITS, PolicyDiff, Proof, Source
from ui.presentation.theme import ROLE_STYLES
from ui.presentation.words import pair_words

#: Why a turn is skipped, in words.
SKIPPED: dict[Source, str] = {
    Source.OTHER_POOL: "recorded with another pool of models",
    Source.OTHER_PROTOCOL: "played by another protocol",
    Source.OTHER_TEXT: "read again, but the text was not the one recorded",
    Source.SVF: "SVF changes the encoder: the transcript has to be read again",
    Source.NO_STATE: "no usable hidden state was kept, as of chance or a single model, or it was removed",
    Source.OTHER_READING: "recorded by another encoder, or read in another way",
}


@dataclass(frozen=True, slots=True)
class AgreementRate:
    """How often two checkpoints agree: the share of `n` turns and its 95 % interval; `close`
    turns were too close to call."""

    name: str
    rate: float | None
    interval: tuple[float, float]
    n: int
    close: int
    key: str = ""


def pair_name(pair: int, models: Sequence[str]) -> str:
    """A pick in words, plain text: `Worker on atlas`."""
    slot, role = divmod(pair, len(ROLE_ORDER))
    return pair_words(ROLE_ORDER[role], models[slot])


def agreement_rates(diff: PolicyDiff, names: Mapping[str, str]) -> list[AgreementRate]:
    """How often each of the others agrees with the baseline."""
    return [
        _rate(names[checkpoint.id], found, checkpoint.id)
        for checkpoint, found in zip(diff.checkpoints[1:], diff.agreements, strict=True)
    ]


def agreement_rates_by_family(diff: PolicyDiff, found: Agreement) -> list[AgreementRate]:
    """How often two checkpoints agree in each task family, families in the order of their names."""
    families = np.array(diff.families())
    return [
        _rate(family, found.among(families == family), family) for family in sorted(set(families.tolist()))
    ]


def _rate(name: str, found: Agreement, key: str) -> AgreementRate:
    return AgreementRate(
        name, found.rate, found.interval, int(found.called.sum()), int(found.close.sum()), key
    )


def trust_lines(diff: PolicyDiff, names: Mapping[str, str]) -> list[str]:
    """What the comparison rests on, as plain sentences: turns used and skipped, tolerance, draws, and proofs."""
    lines = [_counted(diff)]
    lines += [f"Skipped, {SKIPPED[reason]}: {n:,} turns." for reason, n in diff.skipped().items()]
    if diff.tolerance:
        lines.append(
            f"States are kept in half precision, which can move a logit here by up to {diff.tolerance:.3f}. A choice "
            "that this could turn is too close to call, neither agreement nor disagreement."
        )
    if diff.by_draw:
        lines.append(_drawn(diff))
    for one in diff.judgements:
        name = names[one.checkpoint.id]
        lines += _proof(one.head_proof, f"{name}, its head on stored states")
        lines += _proof(one.reread_proof, f"{name}, the transcript read again on {', '.join(one.devices)}")
    return lines


def _counted(diff: PolicyDiff) -> str:
    used = f"Used: {len(diff.turns):,} of {len(diff.judged.turns):,} turns of {len(diff.judged.episodes):,} episodes."
    if diff.judged.matching > len(diff.judged.episodes):
        used += f" Only the newest of {diff.judged.matching:,} episodes are read."
    counts = {
        source: sum(int((one.having(source) & diff.used).sum()) for one in diff.judgements)
        for source in HAS_LOGITS
    }
    return (
        f"{used} Logits: {counts[Source.STATE]:,} by a head on a stored state, {counts[Source.RECORDED]:,} as the "
        f"checkpoint recorded them itself, {counts[Source.REREAD]:,} by reading the transcript again."
    )


def _drawn(diff: PolicyDiff) -> str:
    drawn = int(np.isfinite(diff.at.draws[:, 0]).sum())
    sentence = f"The recorded draw is used at {drawn:,} turns; "
    sentence += f"at {len(diff.turns) - drawn:,} the likeliest choice is taken"
    if diff.unrepeated:
        sentence += f", {diff.unrepeated:,} of all turns because the seed does not repeat what was drawn"
    return f"{sentence}."


def _proof(found: Proof, what: str) -> list[str]:
    if not found.n:
        return []
    within = (
        "all within that bound" if not found.beyond else f"{found.beyond:,} beyond what rounding explains"
    )
    return [
        f"{what}, beside the logits it recorded itself at {found.n:,} turns: at most {found.largest:.2g} apart, "
        f"{within}; the same likeliest choice at {found.same:,}."
    ]


def slot_letter(slot: int) -> str:
    """A slot's letter, as in every turn strip: a, b, c and so on."""
    return chr(ord("a") + slot) if slot < 26 else f"{slot + 1}"


def pair_letter(pair: int) -> str:
    """A pick in short, as in every turn strip: `■a`."""
    slot, role = divmod(pair, len(ROLE_ORDER))
    return f"{ROLE_STYLES[ROLE_ORDER[role]].shape}{slot_letter(slot)}"
