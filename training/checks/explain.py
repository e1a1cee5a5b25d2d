"""Text page that explains a rule for training scripts: its reason, a bad example and a good example."""

from __future__ import annotations

import re
from pathlib import Path

from dyntrain.training.checks.rules import RULES

PAGES_FOLDER = Path(__file__).parent.parent / "rules"
SILENCE_HINT = (
    'To silence {code}: `# dyntrain: ignore[{code}]` on the line, `ElasticJob.join(ignore=("{code}",))` in the script, '
    "or `dyntrain launch --ignore {code}`. The job's events and status list silenced rules."
)
EXAMPLES_HINT = (
    "An example without a loop over epochs is shortened: lines above an empty line belong above that loop, lines below "
    "an empty line belong in the loop over the batches `i`."
)
FIXED_HINT = (
    "This rule cannot be silenced: a step that breaks it has no meaning, or makes the workers' weights diverge."
)


def explain(code: str | None = None) -> str:
    """Return the text page of the rule with this code; without a code, return one line for each rule.

    Raises ValueError if no rule has the code.
    """
    if code is None:
        return "\n".join(f"{any_rule.code}  {any_rule.severity:7}  {any_rule.sentence}" for any_rule in RULES.values())
    if (rule := RULES.get(code.upper())) is None:
        raise ValueError(f"no rule has the code {code!r}: `dyntrain check --explain` lists all codes")
    path = PAGES_FOLDER / f"{rule.code}.md"
    heading = re.sub(r"\{[^{}]+\}", "...", f"# {rule.code} ({rule.severity}): {rule.sentence}\n\nWrite: {rule.remedy}.")
    body = f"{path.read_text().partition(chr(10))[2].strip()}\n\n{EXAMPLES_HINT}" if path.exists() else ""
    return "\n\n".join(filter(None, (heading, body, FIXED_HINT if rule.fixed else SILENCE_HINT.format(code=rule.code))))
