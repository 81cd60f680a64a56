"""Questions over many episodes and what answers them: values that a page, a command and a saved page draw.

`asked` says which episodes are asked about, whose, and what a reader chose, and has what several answers say of
policies; `blocks` are the values that an answer is made of (Table, Estimates, Grid, Bars, Curve, Trend, Areas and the
others), `plain` is their JSON, `pages` lists the analyses. By page: `checkpoints` with `comparison` (who is ahead,
flips, families, tasks); `policy` (what other heads would choose); `routing` with `workflows` of planners and `worth`
(against models alone, luck, without a model); `verifier` with `costs` (a solved problem, turn budgets); `pool` (how
models answer, what they cost, whether they keep to their roles); `outcomes` of recorded models, a room of its own;
`separability` of hidden states; `results` of the paper's tables; `forks`; `evolution` with `learning` (progress of
evolutions and trainings), `habits` (what heads learned, pinned tasks) and `training` (workflows and plans of
planners).

How a page becomes answers (`verifier.py` with `costs.py` is the pattern):

1. Write `ui/answers/NAME.py`: a function `question(asked) -> Answer` for each question, in a tuple; `asked.sides` are
   the one selection or A and B, `asked.read(query, side.where)` runs a query of `storage.analysis` and remembers it.
2. `Answer.sentence` says what the numbers say, with its interval (`asked.each` makes a line a side); where they cannot
   tell, what would. The first block is the one picture. Method, what is left out and second readings go to `measured`.
3. Blocks hold numbers, never numbers as words. A block per side has a title and a key with the side's letter; a `Mark`
   leads into turns (`into`, found again by `Analysis.behind`) or to another page (`to`, from `side.listed`).
4. What a reader may choose within a question is a `Choice` from `asked.choice`: a control, a parameter of the address
   and `--choose NAME=VALUE` at once. Questions that a page shows together are a `Part`; NAME.py ends with `ANALYSIS`.
5. Give it a line in `pages.ANALYSES` (menu, command, tests over all questions follow) and make `ui/web/views/NAME.py`
   as short as `views/verifier.py`. A page that asks about something else than episodes of a filter chooses it by
   itself and calls `show_answers`, as Separability and Policy diff do. A new question of a part is one function here.
6. If a block lacks what a picture needs, widen it in `blocks.py` and in its renderers: `ui.web.analysis`,
   `ui.export.rows` for the terminal and saved pages, `plain`. A renderer for one question alone is the last resort.
"""
