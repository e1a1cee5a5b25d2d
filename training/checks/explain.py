"""Text page of a rule: its reason, a bad example and a good example."""

from __future__ import annotations

import re
from pathlib import Path

from dyntrain.training.checks.rules import RULES

PAGES = Path(__file__).parent.parent / "rules"
SILENCE = (
    'To silence {code}: `# dyntrain: ignore[{code}]` on the line, `ElasticJob.join(ignore=("{code}",))` in the script, '
    "or `dyntrain launch --ignore {code}`. The job's events and status list silenced rules."
)
EXAMPLES = (
    "An example without a loop over epochs is shortened: lines above an empty line belong above that loop, lines below "
    "an empty line belong in the loop over the batches `i`."
)
FIXED = "This rule cannot be silenced: a step that breaks it has no meaning, or makes the workers' weights diverge."


def explain(code: str | None = None) -> str:
    """Return the page of the rule with this code; without a code, one line for each rule.

    Raises ValueError if no rule has the code.
    """
    if code is None:
        return "\n".join(f"{each.code}  {each.severity:7}  {each.sentence}" for each in RULES.values())
    if (rule := RULES.get(code.upper())) is None:
        raise ValueError(f"no rule has the code {code!r}: `dyntrain check --explain` lists all codes")
    path = PAGES / f"{rule.code}.md"
    heading = re.sub(r"\{[^{}]+\}", "...", f"# {rule.code} ({rule.severity}): {rule.sentence}\n\nWrite: {rule.remedy}.")
    body = f"{path.read_text().partition(chr(10))[2].strip()}\n\n{EXAMPLES}" if path.exists() else ""
    return "\n\n".join(filter(None, (heading, body, FIXED if rule.fixed else SILENCE.format(code=rule.code))))
