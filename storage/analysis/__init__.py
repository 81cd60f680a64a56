"""Questions over many episodes, answered in the database."""
