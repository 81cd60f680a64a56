"""Where settings come from and which wins."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from core.settings import Computing, Settings, read_settings


def test_defaults_live_in_the_data_folder(tmp_path: Path) -> None:
    assert read_settings({}, {}, tmp_path) == Settings(
        tmp_path, str(tmp_path / "trinity.db"), "pocket", None, 8501, None
    )


def test_arguments_win_over_environment_over_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('store = "file.db"\npool = "file.toml"\nport = 9000\n')
    environment = {"TRINITY_STORE": "environment.db", "TRINITY_POOL": "environment.toml"}
    settings = read_settings({"store": "argument.db", "pool": None}, environment, tmp_path)
    assert (settings.store, settings.pool, settings.port) == ("argument.db", "environment.toml", 9000)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert read_settings({}, {"TRINITY_POOL": ""}, tmp_path).pool == "pocket"


@pytest.mark.parametrize(
    ("text", "part"),
    [("store = ", "cannot be read"), ('stroe = "x"', "unknown key 'stroe'"), ('port = "many"', "port in")],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=part):
        read_settings({}, {}, tmp_path)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "a lot"])
def test_a_bad_ceiling_names_its_source(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="TRINITY_MAX_COST"):
        read_settings({}, {"TRINITY_MAX_COST": value}, tmp_path)


@pytest.mark.parametrize("port", [0, 70_000, 1.5])
def test_a_bad_port_is_refused(tmp_path: Path, port: float) -> None:
    with pytest.raises(ConfigError, match="--port"):
        read_settings({"port": port}, {}, tmp_path)


def test_processes_are_one_for_each_core_unless_told_otherwise(tmp_path: Path) -> None:
    assert read_settings({}, {}, tmp_path).processes is None
    assert read_settings({}, {"TRINITY_PROCESSES": "1"}, tmp_path).processes == 1
    for value in ("0", "1.5", "-2", "all"):
        with pytest.raises(ConfigError, match="TRINITY_PROCESSES"):
            read_settings({}, {"TRINITY_PROCESSES": value}, tmp_path)


def test_the_device_and_the_numbers_of_an_encoder_are_chosen_as_all_else(tmp_path: Path) -> None:
    assert read_settings({}, {}, tmp_path).computing == Computing("auto", None)
    (tmp_path / "config.toml").write_text('device = "mps"\ndtype = "float16"\n')
    environment = {"TRINITY_DTYPE": "bfloat16"}
    assert read_settings({"device": "cuda"}, environment, tmp_path).computing == Computing("cuda", "bfloat16")
    with pytest.raises(
        ConfigError, match="TRINITY_DEVICE cannot be 'gpu': give 'auto', 'cpu', 'cuda' or 'mps'"
    ):
        read_settings({}, {"TRINITY_DEVICE": "gpu"}, tmp_path)
