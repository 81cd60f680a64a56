"""What a person chooses of a run: plans whose fields are settings, and how they follow from what was chosen."""
