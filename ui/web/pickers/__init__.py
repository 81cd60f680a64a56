"""How a reader chooses episodes, policies and checkpoints: facets and the filter bar, saved views, the compare
basket, the palette, lists of checkpoints and tasks. What is chosen stands in the address."""
