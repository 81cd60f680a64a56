"""How a page lets its reader choose episodes, policies and checkpoints."""
