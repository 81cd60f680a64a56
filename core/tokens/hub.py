"""Models of the Hugging Face hub: fetched into its cache, each at one commit, and found there."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import CheckpointError

#: Of a repository: what describes a model, and its weights. Folders in it hold the same for other programs.
_DESCRIBED = ["*.json", "*.txt", "*.jinja", "README.md"]
_WEIGHTS = "model*.safetensors"
_ELSEWHERE = "*/*"


def hub_parts(encoder: str) -> tuple[str, str]:
    """The repository and the revision of a hub id, such as Qwen/Qwen3-0.6B or Qwen/Qwen3-0.6B@COMMIT; "" for none."""
    repository, _, revision = encoder.partition("@")
    return repository, revision


def pinned(repository: str, commit: str) -> str:
    """The hub id of what a repository held at a commit, which never changes."""
    return f"{repository}@{commit}"


def hub_file(encoder: str, revision: str, name: str) -> Path | None:
    """A file of a hub id as far as it is on this machine; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache  # only a hub encoder needs it

    repository, own = hub_parts(encoder)
    try:
        cached = try_to_load_from_cache(repository, name, revision=own or revision or None)
    except ValueError:  # no name of a repository
        return None
    return Path(cached) if isinstance(cached, str) else None


def hub_place(encoder: str) -> Path:
    """The folder in the hub's cache that has, or would have, what was fetched of a hub id."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    return Path(HF_HUB_CACHE) / repo_folder_name(repo_id=hub_parts(encoder)[0], repo_type="model")


def fetched(encoder: str, check: Callable[[Path], object]) -> tuple[Path, str]:
    """The folder of a hub id and its commit; what is not on this machine is fetched, and `check` looks at all but the
    weights before these are. CheckpointError, one sentence, where the hub does not give it or it has no weights that
    are safe to read."""
    from huggingface_hub import snapshot_download

    repository, revision = hub_parts(encoder)
    with _refusals(encoder):
        folder = Path(
            snapshot_download(
                repository,
                revision=revision or None,
                allow_patterns=_DESCRIBED,
                ignore_patterns=_ELSEWHERE,
            )
        )
    if not any(folder.glob(_WEIGHTS)):
        if not (folder / "config.json").exists():
            raise CheckpointError(
                f"The model {encoder} of the Hugging Face hub has no config.json: name one made for transformers."
            )
        check(folder)
        _check_weights(repository, folder.name)
    with _refusals(encoder):
        snapshot_download(
            repository, revision=folder.name, allow_patterns=_WEIGHTS, ignore_patterns=_ELSEWHERE
        )
    return folder, folder.name


def _check_weights(repository: str, commit: str) -> None:
    from huggingface_hub import HfApi

    with _refusals(repository):
        names = HfApi().list_repo_files(repository, revision=commit)
    if not any(Path(name).match(_WEIGHTS) and "/" not in name for name in names):
        pickled = any(name.endswith((".bin", ".pt", ".pth")) for name in names)
        raise CheckpointError(
            f"The model {repository} of the Hugging Face hub has no model.safetensors"
            + (
                ", only pickled weights, and reading those could run a program: name another model, or save it anew by "
                "transformers' save_pretrained and name that folder."
                if pickled
                else ": name another model."
            )
        )


@contextmanager
def _refusals(encoder: str) -> Iterator[None]:
    """What the hub's client raises, as one sentence that says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, revision = hub_parts(encoder)
    token = "a token that may read it, by HF_TOKEN or hf auth login"
    try:
        with warnings.catch_warnings():  # of a disk that will be full soon, which is said here when it is
            warnings.filterwarnings("ignore", message="Not enough free disk space")
            yield
    except CheckpointError:
        raise
    except Exception as error:  # also whatever its HTTP client raises, which is another in each version
        reason = error.__cause__ if isinstance(error.__cause__, HfHubHTTPError) else error
        status = reason.response.status_code if isinstance(reason, HfHubHTTPError) else 0
        if status == 401 and "Invalid credentials" not in str(reason):
            status = 404  # it says 401 of what it lacks as of what is private
        match reason:
            case HFValidationError():
                said = f"There is no encoder '{encoder}': it is not a local folder, and no id of the Hugging Face hub."
            case GatedRepoError():
                said = (
                    f"The model {repository} is gated: accept its terms at {constants.ENDPOINT}/{repository}, and give "
                    f"{token}."
                )
            case RevisionNotFoundError():
                said = (
                    f"The Hugging Face hub has no revision {revision} of {repository}: name another, or none."
                )
            case RepositoryNotFoundError() | HfHubHTTPError() if status == 404:
                said = (
                    f"There is no encoder '{repository}': it is not a local folder, and the Hugging Face hub has no "
                    f"such model that everybody may read. Check its id; of a private one, give {token}."
                )
            case HfHubHTTPError() if status in (401, 403):
                said = f"The Hugging Face hub does not let you read {repository}: give {token}."
            case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG | errno.EACCES | errno.EROFS):
                said = (
                    f"The model {repository} cannot be written to {constants.HF_HUB_CACHE}: {reason.strerror}. Make "
                    "room there, or name another folder by HF_HUB_CACHE."
                )
            case _:
                why = f"it answered {status}" if status else type(reason).__name__
                said = (
                    f"There is no encoder '{repository}' on this machine, and the Hugging Face hub did not return it "
                    f"({why}). See whether this machine reaches {constants.ENDPOINT}, and try again; or name a folder, "
                    "'pocket', or what trinity encoders list shows."
                )
        raise CheckpointError(said) from error


def licence_of(folder: Path) -> str:
    """The licence that a model's card names; "" where there is none."""
    try:
        lines = (folder / "README.md").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    if not lines or lines[0].strip() != "---":
        return ""
    card: dict[str, str] = {}
    for line in lines[1:]:
        if line.strip() == "---":
            break
        key, found, value = line.partition(":")
        if found:
            card[key] = value.strip().strip("\"'")
    named = [card.get(key, "") for key in ("license_name", "license", "license_link")]
    name = named[1] if named[1] != "other" else named[0] or "other"
    return ", ".join(part for part in (name, named[2]) if part)[:200]
