"""What pip is told about indexes reaches uv, unless uv has been told by itself."""

from pathlib import Path

import pytest

from marin_rules.software.pip_settings import index_variables


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a machine with a home of its own and no settings but those of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    settings = tmp_path / "pip.conf"
    settings.touch()
    # The last file to be read: what it names wins over what this machine itself may have.
    return {"PIP_CONFIG_FILE": str(settings), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_settings_are_translated(machine: dict[str, str]) -> None:
    Path(machine["PIP_CONFIG_FILE"]).write_text(
        "[global]\n"
        "index-url = https://user:secret@index.example/simple\n"
        "extra_index_url =\n    https://one.example/simple\n    https://two.example/simple\n"
        "find-links = /wheels /more/wheels\n"
        "trusted-host = one.example\n"
        "cert = /certificates.pem\n"
        "no-index = false\n"
    )
    assert index_variables(machine) == {
        "UV_DEFAULT_INDEX": "https://user:secret@index.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more/wheels",
        "UV_INSECURE_HOST": "one.example",
        "SSL_CERT_FILE": "/certificates.pem",
    }


def test_variables_win_over_files_the_users_over_the_machines_and_install_over_global(
    machine: dict[str, str], tmp_path: Path
) -> None:
    del machine["PIP_CONFIG_FILE"]
    write(
        tmp_path / "xdg/pip/pip.conf", "[install]\nindex-url = https://of-install.example\n[global]\ncert = /machine\n"
    )
    write(tmp_path / ".config/pip/pip.conf", "[global]\nindex-url = https://of-global.example\ncert = /user\n")
    found = index_variables(machine)
    assert (found["UV_DEFAULT_INDEX"], found["SSL_CERT_FILE"]) == ("https://of-install.example", "/user")
    write(tmp_path / "venv/pip.conf", "[install]\nindex-url = https://of-the-environment.example\n")
    assert index_variables(machine)["UV_DEFAULT_INDEX"] == "https://of-the-environment.example"
    found = index_variables({**machine, "PIP_INDEX_URL": "https://variable.example", "PIP_NO_INDEX": "1"})
    assert (found["UV_DEFAULT_INDEX"], found["UV_NO_INDEX"]) == ("https://variable.example", "1")
    assert index_variables({**machine, "PIP_CONFIG_FILE": "/dev/null"}) == {}


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX"])
def test_a_uv_that_knows_where_to_look_is_left_alone(machine: dict[str, str], variable: str) -> None:
    assert index_variables({**machine, "PIP_INDEX_URL": "https://pip.example", variable: "x"}) == {}


@pytest.mark.parametrize("text", ['[[index]]\nurl = "https://uv.example"', '[pip]\nindex-url = "https://uv.example"'])
def test_so_is_one_with_an_index_in_its_file(machine: dict[str, str], tmp_path: Path, text: str) -> None:
    machine["PIP_INDEX_URL"] = "https://pip.example"
    write(tmp_path / ".config/uv/uv.toml", text)
    assert index_variables(machine) == {}
    write(tmp_path / ".config/uv/uv.toml", 'cache-dir = "/cache"')
    assert index_variables(machine)["UV_DEFAULT_INDEX"] == "https://pip.example"


def test_a_file_that_nobody_can_read_is_no_settings(machine: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / ".config/uv/uv.toml", "not toml")
    Path(machine["PIP_CONFIG_FILE"]).write_bytes(b"\xff no settings")
    assert index_variables({**machine, "PIP_INDEX_URL": "https://pip.example"})["UV_DEFAULT_INDEX"]
