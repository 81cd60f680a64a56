"""Task sets and graders.

`sets` reads and draws tasks and `graders` grades answers: `numbers`, `choices` and `mathematics` (`math_worker`) by
what they say, `programs` by running them (`bubblewrap`, `program_runner`), `own_graders` by a user's function (its
worker beside it), the last two in the `background`.
"""
