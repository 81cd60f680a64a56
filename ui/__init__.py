"""Every door: the web app and the command line."""
