"""The parts of an opened store (`store.runs`, `store.episodes`, ...), one module for each."""
