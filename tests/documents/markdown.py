"""The documents as data: each markdown file of the checkout, its headings, links, code and the commands in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHERS = {"build", "node_modules"}
FENCE = re.compile(r"^ *```([a-z]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
WORDS_OF_SHELLS = {"do", "done", "for", "while", "then"}
PROGRAMS = {
    *("aws", "bash", "cd", "docker", "dyntrain", "eval", "export", "groupadd", "install", "make", "openssl", "pip"),
    *("python", "python3", "read", "scp", "ssh", "ssh-keygen", "sudo", "systemctl", "tail", "tensorboard", "useradd"),
}


@dataclass(frozen=True)
class Typed:
    """A command: its words, where it stands, and whether it is one line of a block, which people paste as it is."""

    words: tuple[str, ...]
    document: str
    pasted: bool

    def __str__(self) -> str:
        return f"{self.document}: {' '.join(self.words)}"


@cache
def documents() -> tuple[str, ...]:
    """By their places below the checkout."""
    places = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return tuple(sorted(str(p) for p in places if not any(part[0] == "." or part in OTHERS for part in p.parts)))


@cache
def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def prose(document: str) -> str:
    """Without its blocks of code."""
    return FENCE.sub("", text(document))


def headings(document: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)


def spans(document: str) -> list[str]:
    return [" ".join(span.split()) for span in SPAN.findall(prose(document))]


def links(document: str) -> list[str]:
    """Those that lead to files."""
    return [to for to in re.findall(r"\]\(([^)\s]+)\)", prose(document)) if "://" not in to]


def shell_blocks(document: str) -> list[str]:
    """A block without a language is one if its first line begins with a program."""
    blocks = FENCE.findall(text(document))
    return [block for language, block in blocks if language in ("sh", "bash") or (not language and _is_shell(block))]


def commands(document: str) -> list[Typed]:
    """Those of its blocks, and those in its sentences, which may be parts of one."""
    pasted = [Typed(words, document, True) for block in shell_blocks(document) for words in simple_commands(block)]
    named = [span for span in spans(document) if span.split()[0] in PROGRAMS]
    return pasted + [Typed(words, document, False) for span in named for words in simple_commands(span)]


def simple_commands(block: str) -> Iterator[tuple[str, ...]]:
    """Each line's commands, without what a shell alone reads: its words, where output goes, comments."""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list[str]()
        for token in [*lexer, ";"]:
            if re.fullmatch(r"[;&|<>()]+", token) is None:
                words.append(token)
            elif set(token) <= set("<>"):
                words.append(token[0])
            else:
                yield from _command(words)
                words = []


def _command(words: list[str]) -> Iterator[tuple[str, ...]]:
    kept = words[: min((words.index(mark) for mark in "<>" if mark in words), default=len(words))]
    while kept and (kept[0] in {"do", "then", "sudo"} or re.match(r"[A-Z_]+=", kept[0])):
        kept = kept[1:]
    if kept and kept[0] not in WORDS_OF_SHELLS:
        yield tuple(kept)


def _is_shell(block: str) -> bool:
    first = block.split(maxsplit=1)[:1]
    return bool(first) and (first[0] in PROGRAMS | WORDS_OF_SHELLS or first[0].startswith(".venv/bin/"))
