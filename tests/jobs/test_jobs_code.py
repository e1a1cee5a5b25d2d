"""What of a folder is in a job's archive: what git would keep, whoever wrote the file, and what links lead to."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.jobs.submission.code import pack
from dyntrain.controller.local.pace import patient

FILES = (
    "train.py", "lib/net.py", "lib/sub/lib/q.py", "data/big.bin", "data/keep.csv", "data/raw/keep.csv", "data/raw/big",
    "A.log", "!x", "a b ", "c", ":(top)y", "secret.pem", "-z",
)  # fmt: skip
PATTERNS = (
    "data/**|!data/raw/|!data/raw/keep.csv", "*|!*/|!*.py", "data/**|!data/keep.csv", "lib/|!lib/", "lib|!/lib",
    "lib/*|!lib/net.py", "build/|lib/|!lib/|!lib/**", "\\!x|a b\\ |c ", "**/raw|!data", "/data/raw/../|data/raw",
)  # fmt: skip


def packed(folder: Path) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(pack(folder).content)) as tar:
        return set(tar.getnames()) - {".dyntrainignore"}


def kept_by_git(folder: Path) -> set[str]:
    subprocess.run(["git", "init", "-q", folder], check=True, timeout=patient(60))
    listed = subprocess.run(
        ["git", "-C", folder, "ls-files", "-z", "--others", "--exclude-from=.dyntrainignore"],
        check=True, capture_output=True, text=True, timeout=patient(60),
    )  # fmt: skip
    return set(filter(None, listed.stdout.split("\0"))) - {".dyntrainignore"}


def with_files(folder: Path, content: bytes, names: tuple[str, ...] = FILES) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".dyntrainignore").write_bytes(content)
    return folder


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("git", [True, False], ids=["git", "library"])
@pytest.mark.parametrize("patterns", PATTERNS)
def test_what_comes_back_and_what_stays_at_home_is_as_with_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patterns: str, git: bool, end: str
) -> None:
    """A pattern that is read otherwise loses code, on machines that are paid for; or it uploads what it names."""
    folder = with_files(tmp_path, end.join([*patterns.split("|"), ""]).encode())
    wanted = kept_by_git(folder)
    if not git:
        monkeypatch.setenv("PATH", "")
    assert packed(folder) == wanted


@pytest.mark.parametrize("git", [True, False], ids=["git", "library"])
def test_the_mark_that_windows_editors_put_in_front_is_no_part_of_the_first_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: bool
) -> None:
    folder = with_files(tmp_path, b"\xef\xbb\xbfsecret.pem\r\ndata/\r\n")
    if not git:
        monkeypatch.setenv("PATH", "")
    assert packed(folder) == {name for name in FILES if name != "secret.pem" and not name.startswith("data/")}


def test_a_file_that_is_no_utf8_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """PowerShell writes UTF-16 by itself; no pattern of it would mean anything."""
    folder = with_files(tmp_path, "secret.pem\n".encode("utf-16"))
    with pytest.raises(Misconfigured, match="UTF-16; save it as UTF-8"):
        pack(folder)
    with_files(tmp_path, b"caf\xe9\n")
    with pytest.raises(Misconfigured, match="save it as UTF-8"):
        pack(folder)


@pytest.mark.parametrize(("pattern", "message"), [("!", "cannot be read"), ("[[:upper:]]*.log", "is not installed")])
def test_what_only_git_understands_is_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, message: str
) -> None:
    folder = with_files(tmp_path, pattern.encode())
    assert ("A.log" in packed(folder)) == (pattern == "!")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Misconfigured, match=message):
        pack(folder)


def test_other_ignore_files_and_settings_of_git_leave_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for the repository; what it ignores, as built extensions, the job may need."""
    home, folder = tmp_path / "home", tmp_path / "code"
    with_files(folder, b"c\n")
    subprocess.run(["git", "init", "-q", folder], check=True, timeout=patient(60))
    home.mkdir()
    (home / "all").write_text("train.py\n")
    (home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {home}/all\n")
    (folder / ".gitignore").write_text("lib/\n")
    (folder / ".git/info/exclude").write_text("A.log\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(folder / ".git"))
    assert packed(folder) == {*FILES, ".gitignore"} - {"c"}


def test_a_repository_inside_the_code_is_a_folder_like_any_other(tmp_path: Path) -> None:
    with_files(tmp_path, b"")
    subprocess.run(["git", "init", "-q", tmp_path / "lib"], check=True, timeout=patient(60))
    assert "lib/net.py" in packed(tmp_path)


def test_the_files_behind_a_link_to_a_folder_are_in_the_archive(tmp_path: Path) -> None:
    """Links to files were, and these left out without a word."""
    folder, shared = tmp_path / "code", tmp_path / "shared"
    with_files(shared, b"", ("util/a.py", "util/b.log"))
    with_files(folder, b"*.log\nnot/\n", ("train.py", "lib/net.py"))
    (folder / "util").symlink_to(shared / "util")
    (folder / "again").symlink_to("lib")
    (folder / "not").symlink_to(shared / "util")
    assert packed(folder) == {"train.py", "lib/net.py", "util/a.py", "again/net.py"}
    (folder / "one.py").symlink_to("train.py")
    (folder / "gone.py").symlink_to("nowhere.py")
    assert packed(folder) == {"train.py", "lib/net.py", "util/a.py", "again/net.py", "one.py"}


@pytest.mark.parametrize(("link", "to"), [("lib/up", ".."), ("self", "."), ("out", "../..")])
def test_a_link_that_leads_around_itself_is_refused_by_its_name(tmp_path: Path, link: str, to: str) -> None:
    folder = with_files(tmp_path / "in" / "code", b"", ("train.py", "lib/net.py"))
    (folder / link).symlink_to(to)
    with pytest.raises(Misconfigured, match=rf"the link \S*{link}\S* in the code.*\.dyntrainignore"):
        pack(folder)
    (folder / ".dyntrainignore").write_text(f"{link}\n")
    assert packed(folder) == {"train.py", "lib/net.py"}


def test_a_folder_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, scandir = with_files(tmp_path, b"", ("train.py", "lib/net.py")), os.scandir

    def denied(place: Any) -> Any:
        if isinstance(place, Path) and place.name == "lib":
            raise PermissionError(13, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(Misconfigured, match=r"/lib cannot be read \(Permission denied\): .*\.dyntrainignore"):
        pack(folder)
