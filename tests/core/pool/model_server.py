"""`transformers serve` in a process that `tests.zygote` forks: `python -m tests.core.pool.model_server serve MODEL ...`.
Nothing is looked up elsewhere, and the models that are listed are those below HF_HUB_CACHE, as in a process that read
the environment for itself."""

from __future__ import annotations

import os

from huggingface_hub import constants
from huggingface_hub.utils import _cache_manager

if __name__ == "__main__":
    constants.HF_HUB_OFFLINE = True
    constants.HF_HUB_CACHE = _cache_manager.HF_HUB_CACHE = os.environ["HF_HUB_CACHE"]
    from transformers.cli.transformers import app

    app()
