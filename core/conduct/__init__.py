"""The Conductor: a language model writes a whole workflow of steps, which is then run (arXiv 2512.04388)."""
