"""The coordinator: encoder, head and singular-value offsets; with the pocket world, all that knows torch."""
