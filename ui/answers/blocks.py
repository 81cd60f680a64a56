"""What an answer is made of: plain values that every door can draw. No screen, no terminal, no number as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from core.analysis.metrics import ClusteredShare, Mean
from storage.analysis.routing import ModelInRole
from ui.presentation.theme import one_line

if TYPE_CHECKING:
    from storage.analysis.counterfactual import Rescored

#: Of words in a table, so many characters are kept.
LONGEST = 100

#: What a column's values are: `words`; a `count`; a `number`; an `estimate` (an Estimate); a `share` in 0 to 1; a
#: `part` of a whole, drawn as a bar; `points` (a difference of shares); a `difference` (an Estimate of one); a `p`;
#: a `score` (a Score: a mean with its deviation); `usd` (None: no known price); a `role`; a `time` (Unix seconds); a
#: `link` (an Address or None); a `way` (a Way or None); an `id` that programs need and a page leaves out; `data` that
#: programs alone read.
Kind = Literal[
    "words",
    "count",
    "number",
    "estimate",
    "share",
    "part",
    "points",
    "difference",
    "p",
    "score",
    "usd",
    "role",
    "time",
    "link",
    "way",
    "id",
    "data",
]


#: How a line is drawn.
Dash = Literal["solid", "dot", "dash", "longdash", "longdashdot", "dashdot"]
#: How a page lets choose.
Look = Literal["segments", "list", "flip", "several"]


@dataclass(frozen=True, slots=True)
class Address:
    """A page and its parameters."""

    page: str
    params: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, or a difference of shares, in 0 to 1, with its 95 % interval, and how many of how many it is where it
    counts something. `value` is None of nothing."""

    value: float | None
    ci95: tuple[float, float] | None
    k: int | None = None
    n: int | None = None

    @classmethod
    def of(cls, share: ClusteredShare | Mean) -> Estimate:
        """The same as a value that needs no clusters any more; a mean counts nothing."""
        if isinstance(share, Mean):
            return cls(share.mean, (share.low, share.high) if share.has_interval else None)
        return cls(share.value, share.ci95 if share.n else None, share.k, share.n)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where what is drawn leads: `into` names the turns behind it, for the page's own list of turns; `to` is another
    page; `side` is the letter of the selection that it is of, where there are two."""

    into: str = ""
    to: Address | None = None
    side: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in JSON, its heading, what its values are, how a value is got from what a row is about, and
    what it means: a word of the glossary or a sentence. `places` are decimals of a number, `link` the words of a
    link."""

    key: str
    words: str
    kind: Kind = "words"
    get: Callable[[Any], Any] = lambda row: row
    help: str = ""
    places: int = 0
    link: str = "List"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a plain value for each column. `leads`: where a click on each row leads in its page, if anywhere."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    key: str = "rows"
    leads: Sequence[Address] = ()

    @classmethod
    def of(
        cls,
        things: Iterable[Any],
        *columns: Column,
        title: str = "",
        key: str = "rows",
        leads: Sequence[Address] = (),
    ) -> Table:
        """A row for each of these things; a ClusteredShare becomes an Estimate, words stay on one line."""
        rows = [[_plain(column.get(one)) for column in columns] for one in things]
        return cls(columns, rows, title, key, leads)


def _plain(value: Any) -> Any:
    if isinstance(value, ClusteredShare | Mean):
        return Estimate.of(value)
    return one_line(value, LONGEST) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Line:
    """One estimate; `faint` where it is too thin to be ranked, `plain` where it does not stand out."""

    name: str
    estimate: Estimate
    mark: Mark = Mark()
    faint: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates with their intervals, a line each, the first on top; `along` says what they measure. `signed`:
    differences around zero. `zoomed`: the axis spans what there is, and no more."""

    lines: Sequence[Line]
    along: str
    signed: bool = False
    title: str = ""
    key: str = "estimates"
    zoomed: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A share in a grid, of what (`detail`), with a sign beside its number. None: nothing is known."""

    value: float | None
    detail: str = ""
    sign: str = ""
    mark: Mark = Mark()
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Shares by row and column; `axes` say what rows and columns are. `signed`: differences. `top`: the value of the
    strongest colour, else the largest. `places`: decimals of values that are no shares. `small`: beside the next."""

    rows: Sequence[str]
    columns: Sequence[str]
    axes: tuple[str, str]
    cells: Sequence[Sequence[Cell]]
    signed: bool = False
    top: float | None = None
    title: str = ""
    key: str = "grid"
    places: int | None = None
    small: bool = False

    def words(self, value: float) -> str:
        """A value as every door writes it in a cell without a unit: whole percent or points, else decimals."""
        if self.places is not None:
            return f"{value:.{self.places}f}"
        rounded = round(100 * value)
        return f"{rounded:+d}" if self.signed and rounded else str(rounded)


@dataclass(frozen=True, slots=True)
class Series:
    """Counts of one kind, a number for each group; `tone` is how it is coloured: each of several equal kinds (`kind`)
    in a colour of its own."""

    name: str
    counts: Sequence[int]
    tone: Literal["right", "wrong", "neutral", "unsure", "kind"] = "neutral"


@dataclass(frozen=True, slots=True)
class Bars:
    """Counts by group, one kind above the other; `axes` say what the groups and the counts are. `level`: the groups are
    names, each a bar from left to right. `marks`: where each group leads, if anywhere."""

    groups: Sequence[str]
    series: Sequence[Series]
    axes: tuple[str, str]
    level: bool = False
    title: str = ""
    key: str = "bars"
    marks: Sequence[Mark] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A place on a curve, or a mark of its own: `x`, an estimate, and whether it can be compared with the others. A
    name is drawn beside it where it `stands_out`."""

    x: float
    estimate: Estimate
    name: str = ""
    detail: str = ""
    faint: bool = False
    stands_out: bool = False
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Curve:
    """Estimates along x with their bands, a line per selection; `axes` are the words of x and y. `places`: decimals of
    values that are no shares."""

    lines: Mapping[str, Sequence[Point]]
    axes: tuple[str, str]
    title: str = ""
    key: str = "curve"
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Estimates along the updates of a run: a line, marks with their intervals, or both for what is measured now and
    then. `tone`: of the run, of a second one, what was validated, what it is compared with; `dash` tells lines of one
    tone apart."""

    name: str
    points: Sequence[Point]
    tone: Literal["first", "second", "right", "neutral"] = "first"
    dash: Dash = "solid"
    look: Literal["lines", "markers", "lines+markers"] = "lines"


@dataclass(frozen=True, slots=True)
class Trend:
    """Estimates along the updates of a run, the place `at` of the chosen one marked; a line whose points have intervals
    has a band. `bands`: (x, low, high) by name, of what chance alone does. `places` as of a Curve. `top`: the end of
    the axis of values. `small`: beside the next. `term`: the glossary's word for it."""

    traces: Sequence[Trace]
    axes: tuple[str, str]
    at: float
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    places: int | None = None
    top: float | None = None
    small: bool = False
    title: str = ""
    key: str = "trend"
    term: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    """The share of one kind at every x, and how it is filled."""

    name: str
    shares: Sequence[float]
    colour: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Areas:
    """Shares of a whole along x, the first kind at the bottom. `at`: the chosen place on the axis, which is `span`
    long. `small`: beside the next."""

    x: Sequence[float]
    areas: Sequence[Area]
    axes: tuple[str, str]
    at: float | None
    span: tuple[float, float]
    small: bool = False
    title: str = ""
    key: str = "areas"


@dataclass(frozen=True, slots=True)
class Strip:
    """What the head of every generation would choose at recorded turns; generation `at` is marked."""

    found: Rescored
    at: int
    title: str = ""
    key: str = "strip"


@dataclass(frozen=True, slots=True)
class Points:
    """Marks at (x, share); those that stand out are joined by steps. `level`: a share to compare them with. `zoomed`:
    the axis of shares spans what there is, and no more."""

    points: Sequence[Point]
    axes: tuple[str, str]
    level: float | None = None
    title: str = ""
    key: str = "points"
    zoomed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a cloud, of the class `name`."""

    x: float
    y: float
    name: str
    detail: str
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Cloud:
    """Points in the plane by class. `slots`: the models of the pool where the classes are models."""

    dots: Sequence[Dot]
    axes: tuple[str, str]
    slots: Sequence[str] = ()
    title: str = ""
    key: str = "cloud"


@dataclass(frozen=True, slots=True)
class Node:
    """A move on the drawing of a flow: (column, row), the model and role that make its look, its share in 0 to 1."""

    at: tuple[float, float]
    move: ModelInRole
    share: float
    detail: str
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Arrow:
    """What follows what; None is the beginning, or the end. `model` is the one whose colour it has, empty for none."""

    start: tuple[float, float] | None
    end: tuple[float, float] | None
    name: str
    n: int
    share: float
    model: str = ""
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Flow:
    """Moves and what follows them, between named columns and rows; `level`: time runs from left to right. `models` are
    those of the pool, by whose order colours go."""

    nodes: Sequence[Node]
    arrows: Sequence[Arrow]
    columns: Sequence[str]
    rows: Sequence[str]
    models: Sequence[str]
    level: bool = False
    title: str = ""
    key: str = "flow"


@dataclass(frozen=True, slots=True)
class Path:
    """One episode of a tree: its moves, and how it ended. `models` are those of its pool."""

    moves: Sequence[ModelInRole]
    right: bool | None
    models: Sequence[str]


@dataclass(frozen=True, slots=True)
class Tree:
    """Episodes that are drawn together as long as they make the same moves."""

    paths: Sequence[Path]
    title: str = ""
    key: str = "tree"


@dataclass(frozen=True, slots=True)
class Code:
    """A command to be copied."""

    text: str
    title: str = ""
    key: str = "command"


Drawn = Table | Estimates | Grid | Bars | Curve | Trend | Areas | Strip | Points | Cloud | Flow | Tree | Code
#: A sentence, or what is drawn.
Block = str | Drawn


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reader may choose within a question: its name in the address and on the command line, its options (value
    -> words; the first is meant where nothing is said) and the one that holds. `look`: `flip` for two options of which
    a page offers the other one as a button, `several` where some, at most `most`, may be chosen (`value` has commas
    between). `also`: what else of the address a choice sets (None: removes)."""

    name: str
    words: str
    options: Mapping[str, str]
    value: str
    look: Look = "segments"
    also: Mapping[str, str | None] = field(default_factory=dict)
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """A link in words."""

    words: str
    to: Address


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, what answers it in a sentence, and what that rests on.

    `key` is its name in JSON and its anchor. The sentence says what the numbers say, with an interval, a line for each
    selection; where they cannot tell, what would. The first block is the one picture. `measured` is what stands in the
    fold "How this is measured": the method, what is left out, second readings. `term`: the glossary's word for it."""

    key: str
    question: str
    sentence: str
    blocks: Sequence[Block] = ()
    measured: Sequence[Block] = ()
    term: str = ""
    choices: Sequence[Choice] = ()
    ways: Sequence[Way] = ()
