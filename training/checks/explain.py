"""The page of a rule, for people: the reason, a bad example and a good one."""

from __future__ import annotations

import re
from pathlib import Path

from dyntrain.training.checks.rules import RULES

PAGES = Path(__file__).parent.parent / "rules"
SILENCE = (
    'To silence it: `# dyntrain: ignore[{code}]` on the line, `ElasticJob.join(ignore=("{code}",))` in the script, or '
    "`dyntrain launch --ignore {code}`. It then stands in the job's events and in its status."
)
EXAMPLES = (
    "In an example without a loop over epochs, lines above an empty one stand above that loop, the others in the loop "
    "over the batches, whose number is `i`."
)
FIXED = "It cannot be silenced: without it a step has no meaning, or the workers' weights part."


def explain(code: str | None = None) -> str:
    """Return a rule's page, or without a code one line for each rule. Raises ValueError for an unknown code."""
    if code is None:
        return "\n".join(f"{each.code}  {each.severity:7}  {each.sentence}" for each in RULES.values())
    if (rule := RULES.get(code.upper())) is None:
        raise ValueError(f"{code!r} is the code of no rule: `dyntrain check --explain` lists them")
    path = PAGES / f"{rule.code}.md"
    head = re.sub(r"\{[^{}]+\}", "...", f"# {rule.code} ({rule.severity}): {rule.sentence}\n\nWrite: {rule.remedy}.")
    body = f"{path.read_text().partition(chr(10))[2].strip()}\n\n{EXAMPLES}" if path.exists() else ""
    return "\n\n".join(filter(None, (head, body, FIXED if rule.fixed else SILENCE.format(code=rule.code))))
