"""Runs as files and back: JSON Lines, Parquet, labels, each written completely or not at all.

`interchange` exports and imports; `jsonl` has the lines of its files, `validation` what no line can say. `parquet`
writes tables for other tools, `selection` says which episodes, `atomic` that a file appears whole. `decompositions`
keeps those of large encoders.
"""
