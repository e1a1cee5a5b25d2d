"""Names that scripts, programs and other versions rely on change only where somebody has accepted it."""

from __future__ import annotations

import json
from pathlib import Path

from public_face import public_face

ACCEPTED = Path(__file__).with_name("public_face.json")


def test_the_public_face_is_as_accepted() -> None:
    assert public_face() == json.loads(ACCEPTED.read_text()), (
        "scripts and other versions may rely on it; to accept the change: "
        "python tests/contracts/public_face.py > tests/contracts/public_face.json"
    )
