"""What a store holds, what may be forgotten, and what each column means."""
