"""Answers on a page: drawn by what they are made of, with the turns behind what is clicked."""
