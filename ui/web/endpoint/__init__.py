"""What pages show of the endpoint: its tiers and its keys."""
