"""Tables, and how values become rows: the one room that knows the schema.

`schema` has the tables, `columns` the types of their columns, `engine` connections and transactions. `mapping` and
`full_episodes` turn episodes into rows and back, `progress` is what lists show of one so far, `search` the full text
index. `summaries` are the light values that readers get.
"""
