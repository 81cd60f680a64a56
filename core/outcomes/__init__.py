"""Outcome tables: what named models answered to the tasks of a set, as somebody recorded it.

`table` holds one and its files, `pool` is a pool whose models reply from it.
"""
