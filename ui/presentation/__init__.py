"""What is shown, as words and marks, without a screen: colours, marks, flags and escaping (`theme`); values, costs,
policies and roles as words (`words`); names of runs (`runs`); workflows and changes of a fork (`steps`); the course
of an episode as strip cells (`course`) and as sentences (`story`); the odds of a decision (`odds`); comparisons, p
values and alignments (`comparison`); what a learning curve says (`learning`); terms for tooltips (`glossary`);
replies as safe Markdown (`rendered`). The command line, pages and exports all say it in these words.
"""
