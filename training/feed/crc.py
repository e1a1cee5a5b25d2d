"""Computes CRC32C, the checksum of TFRecord, by an installed library, or for a few bytes by a table."""

from __future__ import annotations

import importlib
from collections.abc import Callable

_POLYNOMIAL = 0x82F63B78


def _crc_table() -> list[int]:
    crc_table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        crc_table.append(value)
    return crc_table


_CRC_TABLE = _crc_table()


def crc32c_by_table(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def library_crc() -> Callable[[bytes], int] | None:
    """Return an installed library's CRC32C function.

    Returns None if no library is installed, as checksums computed by a table would be slower than the network.
    """
    for module_name, function_name in (
        ("google_crc32c", "value"),
        ("awscrt.checksums", "crc32c"),
        ("crc32c", "crc32c"),
    ):
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        if getattr(module, "implementation", "c") != "python":
            crc_function: Callable[[bytes], int] = getattr(module, function_name)
            return crc_function
    return None


def masked_crc(crc: int) -> int:
    """Return the masked form of a CRC32C checksum, in which a TFRecord stores the checksum."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
