"""The paper's tables on a pool of one's own: their rows, how each is played, and what came out."""
