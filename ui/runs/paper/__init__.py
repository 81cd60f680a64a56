"""The paper's tables on a pool of one's own, for `trinity reproduce` and the page Results.

`tables` (with `tables.toml`) has the tables, their rows and what the store holds of them, over seeds and tasks.
`reproduction` plays a suite: what a row learns first, the best cycles and teams, then the row as a batch run. `results`
writes rows to a JSON file, reads and checks it, and says which differences hold among all.
"""
