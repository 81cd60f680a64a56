"""Files for people: saved pages, tables and archives."""
