"""`transformers serve` in a process that `tests.zygote` forks, by `python -m tests.core.pool.model_server serve MODEL`.
Nothing is looked up elsewhere, and the models that are listed are those below HF_HUB_CACHE, as in a process that read
the environment for itself."""

from __future__ import annotations

import os
from unittest.mock import patch

from huggingface_hub import constants

if __name__ == "__main__":
    from transformers.cli.transformers import app

    models = os.environ["HF_HUB_CACHE"]
    with (
        patch.object(constants, "HF_HUB_OFFLINE", True),
        patch.object(constants, "HF_HUB_CACHE", models),
        patch("huggingface_hub.utils._cache_manager.HF_HUB_CACHE", models),
    ):
        app()
