"""How a reader chooses episodes, policies, checkpoints and tasks: facets with counts and chips (`facets`), the filter
bar of pages that add up (`scope`), lists of checkpoints and policies (`checkpoints`), which policies are compared
(`line`), the compare basket and saved views (`lists`), the palette behind the key G (`palette`), tasks and task files
(`task_file`). What is chosen stands in the address.
"""
