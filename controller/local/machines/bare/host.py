"""Settings of this host that a machine's apt and pip need to reach their registries. The files are bound read-only at
run time, never copied.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
PIP_VARIABLE = re.compile(r"PIP_(?!CACHE_DIR|TARGET|PREFIX|USER|REQUIRE_VIRTUALENV)[A-Z_]+$")
NETWORK_VARIABLE = re.compile(r"(https?|all|no)_proxy$|(SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE)$", re.I)


def variables(environment: Mapping[str, str], without_proxy: str) -> dict[str, str]:
    """Environment variables of this host for programs on the machine. `without_proxy` lists hosts that need
    no proxy.
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


def files(environment: Mapping[str, str]) -> list[Path]:
    """Files and folders of this host that are bound to the same paths on the machine."""
    configured = [Path(name).expanduser() for name in (*PIP_FILES, environment.get("PIP_CONFIG_FILE", "")) if name]
    existing = [path for path in configured if path.is_file()]
    configured_values = [value for name, value in environment.items() if PIP_VARIABLE.fullmatch(name)]
    for path in existing:
        parser = configparser.RawConfigParser(strict=False)
        parser.read(path, encoding="utf-8")
        configured_values += [value for section in parser.sections() for _, value in parser.items(section)]
    words = [word.removesuffix("/") for value in configured_values for word in value.split()]
    local = [Path(word) for word in words if word.startswith("/")]
    # A package index in a folder links to files in the index's parent folder.
    local += [Path(word.removeprefix("file://")).parent for word in words if word.startswith("file:///")]
    local = [path for path in local if len(path.parts) > 2]
    acquire = [path for path in sorted(Path("/etc/apt/apt.conf.d").glob("*")) if _configures_downloads(path)]
    passwords = sorted(Path("/etc/apt/auth.conf.d").glob("*"))
    paths = [*existing, *local, *acquire, *passwords, CERTIFICATES]
    return [path for path in dict.fromkeys(paths) if path.exists()]


def _configures_downloads(path: Path) -> bool:
    return path.is_file() and re.search(r"^\s*Acquire\b", path.read_text("utf-8", "replace"), re.M) is not None


def unit_environment(host_variables: Mapping[str, str]) -> str:
    """A drop-in for systemd's system.conf, with the environment of every unit of the machine."""
    words = " ".join(
        '"' + f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
        for name, value in host_variables.items()
    )
    return f"[Manager]\nDefaultEnvironment={words}\n"
