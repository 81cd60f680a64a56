"""A task played live: form, controls, the turn at hand."""
