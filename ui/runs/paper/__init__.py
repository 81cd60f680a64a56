"""The paper's tables on a pool of one's own: their rows (`tables`, `tables.toml`), how each is played (`reproduction`),
and what came out as a file (`results`)."""
