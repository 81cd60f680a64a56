"""The coordinator: a small language model reads the transcript, a head on its hidden state chooses model and role.

`encoder` gives the hidden states, `svf` changes its singular values, `coordinator` is a checkpoint on an encoder as a
policy, and reads the vector that the authors released. `gradients` says what each word contributed.
"""
