"""A setting is declared once, as a dataclass's field: its type, default, bounds and words in one place.

Options, files of settings, forms, tables and the sentence about a bad value are made from it:

    turns: Annotated[int, Setting("Turn budget", ge=1, le=100, option="--turns")] = 5
    \"\"\"Model calls per task at most.\"\"\"

A field of another dataclass of settings counts as its fields. Fields without a `Setting` are no one's to choose.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import GroupedMetadata, Interval

from core.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")

#: What settings are about, in the order in which they are shown.
Group = Literal["tasks", "size", "search", "reward", "models"]
Extra = Literal["forbid", "ignore"]

#: More tasks, or generations, than this are taken for a slip of the hand: playing them would take months.
MOST_TASKS = 100_000
#: The largest seed: stores keep numbers of 64 bits.
MOST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Setting(GroupedMetadata):
    """What is to be said of a field beside its type and default; pydantic knows the bounds by the same names.

    `title` is its name on forms and in tables (else its key's words), `help` what it does, in sentences, where the
    field has no docstring that says it. `open`: it may be left out, and is found out then. `word` may stand in a
    number's place, for None or for what is found out later. `option` is how it is called on a command line; without
    one it stands in files and forms alone. `term` is the glossary's entry, `free`: a resumed run may have another one.
    `learners` are those that have it, where not all do."""

    title: str = ""
    help: str = ""
    group: Group = "size"
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    open: bool = False
    word: str = ""
    option: str = ""
    metavar: str = ""
    term: str = ""
    free: bool = False
    learners: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[object]:
        yield from Interval(gt=self.gt, ge=self.ge, lt=self.lt, le=self.le)


Turns = Annotated[
    int,
    Setting(
        "Turn budget",
        help="Turn budget: model calls per task at most.",
        ge=1,
        le=100,
        option="--turns",
        term="Turn budget",
    ),
]
LearnerSeed = Annotated[
    int,
    Setting(help="The same seed learns the same again, bit for bit.", ge=0, le=MOST_SEED, option="--seed"),
]
RULES = Setting(
    "Rules",
    help="Rules of the episodes: the paper's, or the authors' released code's.",
    group="search",
    option="--protocol",
    term="Protocol",
)


@dataclass(frozen=True, slots=True)
class Field:
    """A setting in its place. `kind` is its type without None; `default` is the dataclass's own, `help` says what it
    does, `within` is the field of the dataclass that holds it, where that is not the outer one."""

    key: str
    kind: Any
    default: Any
    optional: bool
    setting: Setting
    help: str
    within: str = ""

    @property
    def title(self) -> str:
        """Its name on forms and in tables."""
        words = self.key.replace("_", " ")
        return self.setting.title or words[:1].upper() + words[1:]

    @property
    def left_out(self) -> str:
        """What it is when it is left out; empty where its help does not say it."""
        _, said, words = self.help.rpartition("Left out: ")
        return words.rstrip(".") if said else ""

    @property
    def usual(self) -> Any:
        """What it is where nothing is said of it: its default, None where it is found out then."""
        word = self.setting.word
        return None if self.setting.open else word if self.default is None and word else self.default

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values that it can have, where these are few."""
        if get_origin(self.kind) is Literal:
            return get_args(self.kind)
        return tuple(self.kind) if isinstance(self.kind, type) and issubclass(self.kind, Enum) else ()


def settings_of(kind: type) -> Mapping[str, Field]:
    """The settings that a dataclass declares, by key, in the order of their groups."""
    return _settings(kind)  # types of no known hash are refused by a type checker where it is cached itself


@cache
def _settings(kind: type) -> Mapping[str, Field]:
    found = sorted(_declared(kind), key=lambda one: get_args(Group).index(one.setting.group))
    return {one.key: one for one in found}


def _declared(kind: type, within: str = "") -> Iterator[Field]:
    hints, docs = get_type_hints(kind, include_extras=True), _docstrings(kind)
    for field in fields(kind):
        hint = hints[field.name]
        extras = getattr(hint, "__metadata__", ())
        bare = hint.__origin__ if extras else hint
        if is_dataclass(bare) and isinstance(bare, type):
            yield from _declared(bare, field.name)
        elif setting := next((one for one in extras if isinstance(one, Setting)), None):
            kinds = [one for one in get_args(bare) if one is not NoneType]
            optional = len(kinds) < len(get_args(bare))
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            default = None if default is MISSING else default
            help = docs.get(field.name, setting.help)
            yield Field(field.name, kinds[0] if optional else bare, default, optional, setting, help, within)


def _docstrings(kind: type) -> dict[str, str]:
    """What stands below the fields of a class; Python keeps it in the source alone."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        one.target.id: " ".join(str(below.value.value).split())
        for one, below in pairwise(tree.body)
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


@cache
def _model(kind: type, *, asked: bool) -> type[BaseModel]:
    """The settings of a dataclass as a model; `asked`: as they are asked for, when some may still be left out."""
    from pydantic import ConfigDict, Strict, create_model

    definitions: dict[str, Any] = {}
    for key, one in settings_of(kind).items():
        lax = get_origin(one.kind) is tuple or (isinstance(one.kind, type) and issubclass(one.kind, Enum))
        annotation: Any = (
            Annotated[one.kind, one.setting, Strict(False)] if lax else Annotated[one.kind, one.setting]
        )
        if asked and one.setting.word:
            annotation = Union[annotation, Literal[one.setting.word]]  # noqa: UP007
        if one.optional and not (asked and one.setting.word) or (asked and one.setting.open):
            annotation = Union[annotation, None]  # noqa: UP007
        definitions[key] = (annotation, one.usual if asked else one.default)
    config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    return create_model(kind.__name__, __config__=config, **definitions)


def model_of(
    kind: type, names: Iterable[str], /, *, strict: bool = True, extra: Extra = "forbid", **own: Any
) -> type[BaseModel]:
    """Some fields of a dataclass as they may stand in a file; `own` says what is different there."""
    from pydantic import ConfigDict, create_model
    from pydantic import Field as Declared

    hints, declared = get_type_hints(kind, include_extras=True), dict[str, Any]()
    for one in fields(kind):
        made = (
            one.default if one.default_factory is MISSING else Declared(default_factory=one.default_factory)
        )
        declared[one.name] = (hints[one.name], ... if made is MISSING else made)
    config = ConfigDict(extra=extra, strict=strict)
    return create_model(kind.__name__, __config__=config, **{name: declared[name] for name in names} | own)


def validate_settings(
    kind: type, values: Mapping[str, Any], where: str = "", *, asked: bool = True
) -> dict[str, Any]:
    """All settings of `kind`, by key: those given, read as their types, and the usual ones. ConfigError, one sentence
    that begins with `where`, for a value that its key cannot have."""
    from pydantic import ValidationError

    try:
        return dict(_model(kind, asked=asked)(**values))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        key = str(errors[0]["loc"][0])
        fits = _fitting(one for one in errors if one["loc"][0] == key)
        raise ConfigError(f"{where}{key} cannot be {_shown(values[key])}: give {fits}.") from None


def read(field: Field, value: object, where: str) -> Any:
    """A value that may be written as text, such as an environment variable's, as its field's type. ConfigError, one
    sentence that begins with `where` it stands, for one that the field cannot have."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    kind: Any = Annotated[field.kind, field.setting]
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        fits = _fitting(error.errors(include_url=False))
        raise ConfigError(f"{where} cannot be {_shown(value)}: give {fits}.") from None


#: What fits in the place of a value that does not, by the kind of pydantic's error; braces hold its context.
_FITTING = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number of at most {le}",
    "less_than": "a number below {lt}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def _fitting(errors: Iterable[Mapping[str, Any]]) -> str:
    """What to give instead: `a whole number or 'auto'`."""
    words = (
        _FITTING[one["type"]].format(**one.get("ctx", {})) if one["type"] in _FITTING else one["msg"]
        for one in errors
    )
    return " or ".join(dict.fromkeys(words))


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


def check(config: Any) -> None:
    """ConfigError for a dataclass of settings that holds a value that its field cannot have."""
    validate_settings(type(config), values_of(config), asked=False)


def values_of(config: Any) -> dict[str, Any]:
    """The settings that a dataclass holds, by key."""
    return {
        key: getattr(getattr(config, one.within) if one.within else config, key)
        for key, one in settings_of(type(config)).items()
    }


def build_settings(kind: type[T], values: Mapping[str, Any], **more: Any) -> T:
    """The dataclass of these settings, in which a word that stands for None is None; `more` are fields of it that are
    no settings."""
    own: dict[str, Any] = more
    inner: dict[str, dict[str, Any]] = {}
    for key, one in settings_of(kind).items():
        if key in values:
            value = None if one.setting.word and values[key] == one.setting.word else values[key]
            (inner.setdefault(one.within, {}) if one.within else own)[key] = value
    hints = get_type_hints(kind)
    return kind(**own, **{name: hints[name](**some) for name, some in inner.items()})
