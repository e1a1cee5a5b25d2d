"""What bare machines are lent of this host, and what their common root is made of; they boot in `tests/bare`."""

from __future__ import annotations

from pathlib import Path

import pytest
from dyntrain.controller.local.machines.bare import host, image
from dyntrain.controller.local.stack import template_text


def test_programs_on_a_machine_are_told_the_way_to_the_registries_and_no_secret_of_this_host() -> None:
    here = {
        "PIP_INDEX_URL": "https://registry.example/simple",
        "PIP_CACHE_DIR": "/somewhere/here",
        "https_proxy": "http://proxy.example:3128",
        "NO_PROXY": "intranet.example",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "GITHUB_TOKEN": "secret",
        "HOME": "/home/somebody",
    }
    lent = host.network_variables(here, "198.18.0.1,169.254.169.254")
    assert set(lent) == {"PIP_INDEX_URL", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"}
    assert lent["NO_PROXY"] == "intranet.example,198.18.0.1,169.254.169.254", "the metadata service is behind no proxy"
    assert host.network_variables({"NO_PROXY": "x"}, "198.18.0.1") == {"NO_PROXY": "x"}, (
        "there is no proxy to go around"
    )


def test_a_value_reaches_every_unit_as_it_is() -> None:
    text = host.unit_environment({"A": 'b "c" 100% \\', "D": "e"})
    assert text == '[Manager]\nDefaultEnvironment="A=b \\"c\\" 100%% \\\\" "D=e"\n'


def test_an_index_in_a_folder_of_this_host_is_lent_with_the_files_beside_it(tmp_path: Path) -> None:
    pages, wheels = tmp_path / "index" / "simple", tmp_path / "wheels"
    for folder in (pages, wheels):
        folder.mkdir(parents=True)
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nextra-index-url = file://{pages}/\n    https://registry.example/simple\n")
    lent = host.lent_files({"PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": str(wheels)})
    assert {config, wheels, tmp_path / "index"} <= set(lent)
    assert Path("/") not in lent


def test_what_is_downloaded_for_all_machines_is_what_the_user_data_installs() -> None:
    wanted = image.user_data_packages(template_text())
    assert {"python3-venv", "libgomp1", "libquadmath0"} <= set(wanted)
    assert not [word for word in wanted if "/" in word or word.startswith("-")]


def test_who_is_not_root_is_told_so() -> None:
    with pytest.raises(image.BareUnavailable, match="only root can do"):
        image.check_host(1000)
