"""One turn and one episode on a page, read turn by turn from a `Recording` (`recording`): the card of a turn
(`turn_card`), its decision with bars, grid and prompt (`decision`), the panels beside it (`panels`) and what in the
text made the choice (`why`), figures over turns (`figures`), the graph of a workflow (`workflow`), labels (`labels`),
forks as a tree (`variations`), and the bar of a replay (`bar`).
"""
