"""The page of evolutions and trainings: the forms that begin one, and one of them as it stands.

`form` draws the settings of `EvolutionPlan` and `TrainingPlan` with sizes that a click fills in and a ceiling of cost;
`page` the headline, the slider over generations or iterations with the ways on from the chosen checkpoint, and what
recorded episodes say beside it. What the numbers come to is in `ui.answers` (`learning`, `evolution`, `habits`,
`training`).
"""
