"""Settings of this host that apt and pip on a bare machine need to reach their package registries. The machine sees the
settings files through read-only bind mounts; the files are never copied.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path

CERTIFICATES_FILE = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
PIP_VARIABLE = re.compile(r"PIP_(?!CACHE_DIR|TARGET|PREFIX|USER|REQUIRE_VIRTUALENV)[A-Z_]+$")
NETWORK_VARIABLE = re.compile(r"(https?|all|no)_proxy$|(SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE)$", re.I)


def network_variables(environment: Mapping[str, str], without_proxy: str) -> dict[str, str]:
    """The environment variables of this host that programs on a bare machine need to reach the network. `without_proxy`
    lists hosts that must be reached without a proxy.
    """
    host_variables = {
        name: value
        for name, value in environment.items()
        if PIP_VARIABLE.fullmatch(name) or NETWORK_VARIABLE.fullmatch(name)
    }
    if any(name.lower().endswith("s_proxy") or name.lower() == "http_proxy" for name in host_variables):
        for name in ("no_proxy", "NO_PROXY"):
            host_variables[name] = ",".join(filter(None, [host_variables.get(name, ""), without_proxy]))
    return host_variables


def lent_files(environment: Mapping[str, str]) -> list[Path]:
    """Files and folders of this host that a bare machine sees, read-only, at the same paths."""
    configured_files = [
        Path(name).expanduser() for name in (*PIP_FILES, environment.get("PIP_CONFIG_FILE", "")) if name
    ]
    existing_files = [path for path in configured_files if path.is_file()]
    configured_values = [value for name, value in environment.items() if PIP_VARIABLE.fullmatch(name)]
    for path in existing_files:
        config_parser = configparser.RawConfigParser(strict=False)
        config_parser.read(path, encoding="utf-8")
        configured_values += [
            value for section in config_parser.sections() for _, value in config_parser.items(section)
        ]
    configured_words = [
        configured_word.removesuffix("/") for value in configured_values for configured_word in value.split()
    ]
    local_paths = [Path(configured_word) for configured_word in configured_words if configured_word.startswith("/")]
    # A package index in a folder links to files in the index's parent folder.
    local_paths += [
        Path(configured_word.removeprefix("file://")).parent
        for configured_word in configured_words
        if configured_word.startswith("file:///")
    ]
    local_paths = [path for path in local_paths if len(path.parts) > 2]
    apt_files = [path for path in sorted(Path("/etc/apt/apt.conf.d").glob("*")) if _configures_downloads(path)]
    password_files = sorted(Path("/etc/apt/auth.conf.d").glob("*"))
    all_paths = [*existing_files, *local_paths, *apt_files, *password_files, CERTIFICATES_FILE]
    return [path for path in dict.fromkeys(all_paths) if path.exists()]


def _configures_downloads(path: Path) -> bool:
    return path.is_file() and re.search(r"^\s*Acquire\b", path.read_text("utf-8", "replace"), re.M) is not None


def unit_environment(host_variables: Mapping[str, str]) -> str:
    """The text of a drop-in file for systemd's system.conf, which sets the environment variables of every unit on the
    machine.
    """
    escaped_variables = " ".join(
        '"' + f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
        for name, value in host_variables.items()
    )
    return f"[Manager]\nDefaultEnvironment={escaped_variables}\n"
