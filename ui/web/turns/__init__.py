"""One turn, one episode: cards, decisions, labels, and what stands beside them."""
