"""Build hook of hatchling that combines folders of the repository into one package `dyntrain`.

In a wheel, the folders of the package are copied into `dyntrain/`. In a checkout, `build/path/dyntrain` contains links
to the folders, and an editable install adds `build/path` to Python's path. Because of the links, mypy, import-linter
and pytest use the same module names as an installed package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("controller", "node_bootstrap", "training")  # top folders of the package
FACE_FILES = (
    "__init__.py",
    "__main__.py",
    "missing.py",
    "numpy_names.py",
    "py.typed",
)  # files at the top of the package
PATH_FILE = "dyntrain-numpy-names.pth"  # in site-packages; sorts after the path file of an editable install
EMBEDDED_CLOUD_FILES = (
    "app.py",
    ".chalice/config.json",
    ".chalice/policy-*.json",
    ".chalice/resources.yaml",
)  # files that the embedded cloud runs, shipped as data


class OnePackage(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        path_file = {f"training/face/{PATH_FILE}": PATH_FILE}
        if version == "editable":
            build_data["force_include_editable"].update(path_file)
            link(Path(self.root))
        else:
            build_data["force_include"].update(path_file)
            build_data["force_include"].update({f"training/face/{name}": f"dyntrain/{name}" for name in FACE_FILES})
            data_files = [
                path.relative_to(self.root)
                for name in EMBEDDED_CLOUD_FILES
                for path in sorted(Path(self.root).glob(name))
            ]
            build_data["force_include"].update(
                {str(name): f"dyntrain/controller/local/app/{name}" for name in data_files}
            )


def link(root: Path) -> None:
    """Create the folder `build/path/dyntrain` with links to the package's folders and files.

    Existing links are kept, as running processes may import modules through these links.
    """
    package_folder = root / "build" / "path" / "dyntrain"
    package_folder.mkdir(parents=True, exist_ok=True)
    for entry_name in FOLDERS:
        _link(package_folder / entry_name, f"../../../{entry_name}")
    for entry_name in FACE_FILES:
        _link(package_folder / entry_name, f"../../../training/face/{entry_name}")


def _link(link_path: Path, target: str) -> None:
    if not link_path.is_symlink():
        link_path.symlink_to(target)
