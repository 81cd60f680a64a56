"""Answers on a page: each question with its sentence, its picture, and one fold.

`page` chooses the part and shows the turns behind a click; `draw` takes an answer's blocks apart (Table, Grid, Curve,
Trend and the others) into Streamlit; `figures` makes their Plotly figures, `updates` those along generations and
iterations, `flows` the graph of who follows whom and the tree of moves.
"""
