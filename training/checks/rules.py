"""Table of the rules by which training scripts are checked; the meaning of a rule's code never changes. Pure.

A broken rule of severity `error` stops the job, because the script's own numbers prove the mistake. A broken rule of
severity `warning` does not stop the job, because the mistake is only inferred from the source, from names, or from how
an array was made. The text page that explains a rule is the file `training/rules/CODE.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
MOST_RULE_WORDS = 30  # most words of sentence and remedy together


@dataclass(frozen=True)
class Rule:
    """A rule for scripts, with format strings that describe the mistake (`sentence`) and the code to write (`remedy`).

    A rule with `fixed` cannot be silenced, because the job cannot continue after the mistake.
    """

    code: str  # such as DT101
    severity: Severity  # whether a broken rule stops the job
    sentence: str  # names the mistake
    remedy: str  # what to write instead
    fixed: bool = False  # whether the rule cannot be silenced


# fmt: off
_ALL_RULES = (
    # ---- DT1: the loss, and the trainer's `loss` argument
    Rule("DT101", "error", "the loss is a mean over the batch, but its trainer expects a sum",
         "job.trainer(..., loss='mean')"),
    Rule("DT102", "error", "the loss is a sum, with loss='mean'",
         "leave loss='mean' out, or write .mean() in place of .sum()"),
    Rule("DT103", "error", "the loss adds a mean over the batch and a sum over the batch",
         "divide each term by epoch.sum(n) of what it is a mean over, with loss='own' and step(1)"),
    Rule("DT104", "error", "the loss is divided by something that this worker counted in its samples",
         "leave the division out, and write trainer.step(epoch.sum(n))"),
    Rule("DT105", "error", "the loss is a mean over places that are chosen in the batch",
         ".sum() in place of .mean(), and trainer.step(epoch.sum(n)) with how many are chosen"),
    Rule("DT106", "error", "the loss is a mean over places that are picked by their indices",
         "loss='mean' where each sample has as many; else .sum() and trainer.step(epoch.sum(n))"),
    Rule("DT107", "error", "the loss has normalization='valid' or 'batch', which divides by what this worker counted",
         "normalization='null', and trainer.step(epoch.sum(n) * m)"),
    Rule("DT108", "error", "each sample's loss contains a sum or a mean over the batch",
         "one .mean() of all with loss='mean'; or count it over all workers, by epoch.sum(n)"),
    Rule("DT109", "error", "the loss is a function of a value over the batch, such as the root of a mean",
         "leave the function out, or apply it to each sample"),
    Rule("DT110", "error", "the loss has a term of the weights alone, which counts once for each worker",
         "the optimizer's wd; or divide the term: term * len(x) / n, n = epoch.sum(len(x))"),
    Rule("DT111", "warning", "the loss has a term of weights and arrays without a layer, which counts once for each "
         "worker",
         "divide it by the workers; loss='sum' if it is over the batch"),
    Rule("DT114", "warning", "MXNet's record does not show whether the loss is a sum or a mean over the samples",
         "say job.trainer(..., loss='sum'), 'mean' or 'own'"),
    Rule("DT116", "error", "the loss has a number for each sample, with loss='mean'",
         "leave loss='mean' out if trainer.step() gets the batch size"),
    # ---- DT2: the probe of the first batch
    Rule("DT201", "error", "the gradient of {name} for {whole} samples differs by {share:.1%} from the sum for {first} "
         "and {rest} samples",
         "epoch.sum(n) for each number that the script counts in its batch"),
    Rule("DT202", "warning", "the first batch is not probed: {why}",
         "nothing, if each sample's loss depends on that sample alone"),
    Rule("DT203", "warning", "the script draws a number for its batch ({by}), which differs on each worker",
         "draw by epoch.random(name), which is the same on all"),
    # ---- DT3: gradients and weights that the script changes itself
    Rule("DT301", "error", "the gradient of {name} is changed before it is summed over the workers",
         "trainer.allreduce_grads(), the change, then trainer.update(n) in place of step(n)"),
    Rule("DT302", "warning", "the gradient of {name} is multiplied before it is summed, by a number that may differ "
         "between workers",
         "trainer.allreduce_grads(), the change, then trainer.update(n) in place of step(n)"),
    # ---- DT4: step(n), and values that must agree on all workers
    Rule("DT401", "error", "step({n:g}) is no batch size: this worker has {here} of the {all} samples of this batch",
         "{batch}, or this worker's samples; step(epoch.sum(n)) for a count; loss='own' takes any other{more}",
         fixed=True),
    Rule("DT402", "error", "step({n:g}) after {batches} batches may mean {meanings}",
         "job.trainer(..., loss='own') with a number that is the same on every worker{more}", fixed=True),
    Rule("DT403", "error", "step(epoch.sum(n)) after several batches",
         "memory.n += epoch.sum(n) in each batch, then step(memory.n) with loss='own'", fixed=True),
    Rule("DT404", "error", "step(1) after epoch.sum() may mean the sum or this worker's one sample",
         "loss='own' takes the number itself; the number of samples is epoch.sum(len(x))", fixed=True),
    Rule("DT405", "error", "step({n:g}) may mean the batches of this update, or the samples of its last batch",
         "job.trainer(..., accumulate={n:g}), or pass the batch size", fixed=True),
    Rule("DT406", "error", "step({n:g}): must be above 0, and the same on every worker",
         "step(max(1, epoch.sum(n))) where a batch may have nothing that counts", fixed=True),
    Rule("DT411", "error", "the workers divide by different numbers: {what}",
         "a number in step() that is the same on all, as epoch.sum(n) is", fixed=True),
    Rule("DT412", "error", "the workers' losses or gradients count differently: {what}",
         "leave the division out, and write trainer.step(epoch.sum(n))", fixed=True),
    Rule("DT413", "error", "the workers' updates would differ: {what}",
         "keep their causes in job.memory(...), or compute them from epoch.step_number", fixed=True),
    # ---- DT5: values that a joining worker lacks
    Rule("DT508", "error", "the forward pass changes {name}, which is in no trainer: each worker would have "
         "another value",
         "job.epochs(..., net=net); a frozen body under autograd.predict_mode()"),
    # ---- DT6: mistakes in the source
    Rule("DT601", "warning", "`{what}` would leave the loop over {loop}, while the other workers wait for this one",
         "job.epochs(..., steps=N), or job.stop() and let the loop go on"),
    Rule("DT604", "warning", "the loop carries values in {names}, which a worker that joins has as before the loop",
         "memory = job.memory({memory}), if anything depends on these values"),
    Rule("DT605", "warning", "the number {name} of enumerate(...) begins at 0 on a worker that joins",
         "epoch.enumerate(...) numbers batches; an epoch is its own number"),
    Rule("DT607", "warning", "an iterator beside the batches or epochs in zip(...) begins anew on a worker that joins",
         "one dataset of pairs; values[epoch]"),
    Rule("DT612", "warning", "another loop over {job}.epochs() may follow, but this loop has no name: the job ends "
         "with this loop",
         "{job}.epochs(..., name='...') of each"),
)
# fmt: on
RULES = {rule.code: rule for rule in _ALL_RULES}
