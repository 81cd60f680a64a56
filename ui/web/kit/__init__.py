"""What every page uses and no page owns: the store, the address bar, links and session (`state`), caches of what was
read (`cache`), Plotly figures (`figures`), data frames as tables (`tables`), blocks of foreign text and markdown
tables (`text`), settings as form fields (`fields`), and buttons, downloads, popovers and badges (`widgets`).
"""
