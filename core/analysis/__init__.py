"""Numbers about episodes and decisions: accuracies, comparisons, agreement, separability."""
