"""Care for a store that has grown: what its tables mean and take, and what it may forget.

`tables` explains and measures them, `retention` previews and removes hidden states, texts, episodes and runs.
"""
