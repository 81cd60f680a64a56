"""What each kind of run is called, who plays it, the page that shows it, and how one that stands still goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from storage.rows.summaries import RunSummary
from ui.runs.plans import AttributionPlan, RereadPlan, known_plan


@dataclass(frozen=True, slots=True)
class KindOfRun:
    """A kind of run as a reader knows it: `words` name it, `doing` says what it does while it runs, `page` shows it,
    with `icon` beside links to it. `resumes`: that page has a button that goes on with it; `command` is what to type
    instead, with the run's id after it, empty where nothing can be typed. `player` is the module whose `prepare` makes
    such a plan ready; empty for what is never queued. `awaited`: a person looks on until its first result is there, so
    the worker that the app keeps ready takes it."""

    words: str
    doing: str
    page: str
    icon: str
    resumes: bool = False
    command: str = ""
    player: str = ""
    awaited: bool = False

    def resume_command(self, run_id: str) -> str:
        """What to type to go on with a run; empty when there is nothing to type."""
        return f"{self.command} {run_id}" if self.command else ""


#: By the kind that the store keeps.
RUN_KINDS: dict[str, KindOfRun] = {
    "run": KindOfRun(
        "batch run",
        "playing",
        "episodes",
        ":material/table_rows:",
        command="trinity run --resume",
        player="ui.runs.batch",
    ),
    "live": KindOfRun(
        "live play",
        "playing",
        "live",
        ":material/play_circle:",
        resumes=True,
        player="ui.runs.live",
        awaited=True,
    ),
    "evolve": KindOfRun(
        "evolution",
        "evolving",
        "evolution",
        ":material/trending_up:",
        resumes=True,
        command="trinity evolve --resume --name",
        player="ui.runs.evolution",
    ),
    "train": KindOfRun(
        "training",
        "learning",
        "evolution",
        ":material/school:",
        resumes=True,
        command="trinity train --resume --name",
        player="ui.runs.training",
    ),
    "fork": KindOfRun(
        "run of forks",
        "playing",
        "forks",
        ":material/call_split:",
        resumes=True,
        command="trinity fork --resume",
        player="ui.runs.forks.play",
    ),
    "reencode": KindOfRun(
        "reading again",
        "reading",
        "policy",
        ":material/menu_book:",
        resumes=True,
        player="ui.runs.reading.rereading",
    ),
    "attribute": KindOfRun(
        "attribution",
        "reading",
        "replay",
        ":material/manage_search:",
        resumes=True,
        player="ui.runs.reading.attributing",
        awaited=True,
    ),
    # Played by the endpoint itself: nothing of it can be resumed, as nobody waits for the answers any more.
    "serve": KindOfRun("endpoint", "serving", "episodes", ":material/api:"),
    # A batch run that is a row of the paper's tables.
    "reproduction": KindOfRun(
        "row of a table",
        "playing",
        "episodes",
        ":material/table_rows:",
        command="trinity run --resume",
        player="ui.runs.batch",
    ),
}

#: The kinds that a person waits for.
AWAITED: tuple[str, ...] = tuple(kind for kind, one in RUN_KINDS.items() if one.awaited)


def kind_of(run: RunSummary) -> KindOfRun:
    """The kind of a run. One of several policies leads to their comparison, where it can go on, too."""
    kind = RUN_KINDS[run.kind]
    compares = run.kind == "run" and len(run.config.get("policies") or ()) > 1
    return replace(kind, page="checkpoints", resumes=True) if compares else kind


def address_of(run: RunSummary) -> dict[str, str]:
    """The query with which the page of its kind shows a run."""
    if run.kind in ("reencode", "attribute"):
        plan = known_plan(run)
        return plan.address() if isinstance(plan, RereadPlan | AttributionPlan) else {}
    return {"run": run.id}
