"""The coordinator: encoder, head and singular-value offsets; the only rooms that know torch, with the pocket world."""
