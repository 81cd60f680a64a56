"""Runs as files and back: JSON Lines, Parquet, labels, each written completely or not at all."""
