"""The error tree: what can go wrong through no fault of the program, each with one sentence for the user.

TrinityError
├── ConfigError        a pool file, a setting or an argument that cannot be used
│   └── NothingAllowed a mask that leaves a policy nothing to choose
├── CheckpointError    a checkpoint that does not exist, cannot be read or does not fit
├── TaskError          an unknown task set or a malformed task file
├── PoolError          a pool that cannot be asked (missing key variable, unknown model)
├── StoreError         a store that cannot be opened or does not hold what was asked for
├── ImportFormatError  an interchange file that is truncated, foreign or contradicts the store
└── BudgetError        a spend ceiling that forbids what was asked

Doors (command line, pages, workers) catch TrinityError once and show its sentence: what is wrong and what to do.
A model's failure is not an exception but data: `Reply.error`.
"""


class TrinityError(Exception):
    """A mistake that one sentence to the user can mend; `str(error)` is that sentence, on one line."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


class ConfigError(TrinityError):
    """A pool file, a setting or an argument that cannot be used."""


class NothingAllowed(ConfigError):
    """A mask that leaves a policy nothing that it could choose."""


class CheckpointError(TrinityError):
    """A checkpoint that does not exist, cannot be read or does not fit what it is loaded into."""


class TaskError(TrinityError):
    """An unknown task set or a malformed task file."""


class PoolError(TrinityError):
    """A pool that cannot be asked: a missing key variable, an unknown model."""


class StoreError(TrinityError):
    """A store that cannot be opened or does not hold what was asked for."""


class ImportFormatError(TrinityError):
    """An interchange file that is truncated, foreign or contradicts the store."""


class BudgetError(TrinityError):
    """A spend ceiling that forbids what was asked."""
