"""Evolution of a coordinator: the optimiser, the fitness and the loop."""
