"""What can be begun, priced, played, stopped and resumed; the command line and the pages are doors over it."""
