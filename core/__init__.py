"""Ground floor: the nouns of a coordinated episode and everything that makes them."""
