"""The pocket world: small real tasks, small real models and their training."""
