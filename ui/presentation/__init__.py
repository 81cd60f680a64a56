"""Values as words, colours and marks, for every door; nothing here knows a screen."""
