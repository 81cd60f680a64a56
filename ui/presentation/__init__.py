"""What is shown, as words and marks, without a screen: colours and marks (`theme`), values, policies and runs as
words (`words`, `runs`), what happened in an episode (`course`, `story`), odds of a decision, comparisons, and
foreign text made safe (`rendered`). The command line, pages and exports all say it in these words.
"""
