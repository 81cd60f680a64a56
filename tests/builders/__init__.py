"""Builders of what tests play with: pools, checkpoints, encoders, episodes and stores.

pools          a pool that says what a test wrote for it; specifications of its models
checkpoints    a checkpoint of any head over any models
encoder        a tiny random Qwen3 with its tokenizer
play           episodes played by the role loop: tasks, births, a policy with a head, a grader
recorded       episodes written down turn by turn, of every state, and a store of them
sample_store   a store as after a first evening; diffed, hostile_store, large_store: others for what their names say
"""
