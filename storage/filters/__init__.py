"""Which episodes are meant: the filter language, and the lists and counts it narrows.

`expression` has its tree, `parser` reads it, `vocabulary` has its fields. `episode_filter` is what travels in an
address and becomes SQL; `listing` has the columns, orders, pages and facets of lists.
"""
