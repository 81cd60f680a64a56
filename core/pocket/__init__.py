"""The pocket world: small real tasks, small real models and their training; the embedded default pool.

Everything here is labelled `pocket` wherever it appears: its figures say nothing about frontier models. `families` and
`held_out` make problems and `tasks` draws them; `models` has pool entries, recipes and cards, `corpus` and `training`
make the language models, and `pool` samples their replies (`threads`: on how many threads of torch).

Not of that world but beside it: `writing` is how any language model writes in this process, the pocket ones too, and
`local` makes one of a folder a member of a pool.
"""

from pathlib import Path

#: Pool slots in head order.
MODELS: tuple[str, ...] = ("atlas", "abacus", "plato", "sage", "themis", "jack", "pip")

#: Families that models are trained on and coordinators evolve on.
TRAINED_FAMILIES: tuple[str, ...] = ("math", "logic", "knowledge", "code")

#: Families that models know a little of and no coordinator ever evolves on.
HELD_OUT_FAMILIES: tuple[str, ...] = ("dates", "units", "sequences", "sets")

FAMILIES: tuple[str, ...] = TRAINED_FAMILIES + HELD_OUT_FAMILIES

#: What reads the transcript for the coordinator. It learns the next token of transcripts and nothing else.
ENCODER = "encoder"

#: Where the shipped weights are: one Hugging Face folder per model and one for the encoder.
WEIGHTS: Path = Path(__file__).parent / "weights"
