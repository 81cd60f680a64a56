"""Which episodes are meant: the filter language, and the lists and counts it narrows."""
