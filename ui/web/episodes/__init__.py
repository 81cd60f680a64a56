"""The list of episodes: table, groups, preview."""
