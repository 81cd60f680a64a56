"""Tables, and how core's values become rows and come back."""
