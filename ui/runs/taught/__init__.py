"""Policies that are chosen or taught before they play, made from their names: rules that ask until something, and
learned routers."""
