"""Where a run stands, what it may cost, and how to go on with it."""
