"""One line for people for each thing that the coordinator announces."""

from __future__ import annotations

from training.orders import Announce


def describe(order: Announce) -> str | None:
    """The line, or None for what only programs want to know."""
    fields = order.fields
    match order.event:
        case "segment":
            rate = fields["samples"] / fields["seconds"] if fields["seconds"] else 0.0
            metrics = " ".join(f"{name}={value:.4f}" for name, value in fields["metrics"].items())
            where = f"epoch {fields['epoch']} step {fields['to']['step']} generation {fields['generation']}"
            return f"{where} workers {fields['workers']} {rate:.0f} samples/s {metrics}"
        case "forming":
            return (
                f"forming generation {fields['number']} at epoch {fields['position']['epoch']} sample {fields['position']['offset']}: "
                f"{fields['cause']}; {len(fields['members'])} workers, joining {_names(fields['joining'])}, leaving {_names(fields['leaving'])}"
            )
        case "formed":
            phases = " ".join(f"{name} {seconds:.2f} s" for name, seconds in fields["phases"].items())
            return f"formed generation {fields['generation']}: {phases}"
        case "pause":
            return f"survivors paused {fields['seconds']:.2f} s for generation {fields['generation']}"
        case "joined":
            return f"{fields['instance']} joined (generation {fields['generation']}, pid {fields['pid']})"
        case "left":
            return f"{fields['instance']} left"
        case "worker_lost" | "worker_refused":
            return f"{fields['instance']} {order.event.replace('_', ' ')}: {fields['reason']}"
        case "cooling_down":
            return f"{fields['instance']} cools down for {fields['seconds']:.0f} s: {fields['reason']}"
        case "taken_back":
            return f"generation {fields['generation']} is taken back before it began: {fields['reason']}"
        case "restart":
            at = fields["commit"]
            where = f"of step {at['step']} (epoch {at['epoch']})" if at else "none"
            return f"restarting the workers; last commit: {where}: {fields['reason']}"
        case "commit_failed":
            return f"training goes on, but step {fields['step']} is not committed: {fields['reason']}"
        case "commit_unreadable":
            at = fields["instead"]
            where = f"the one of step {at['step']} (epoch {at['epoch']}) is taken" if at else "there is none before it"
            return f"commit of step {fields['position']['step']} cannot be used, {where}: {fields['reason']}"
        case "failed":
            return f"job failed: {fields['reason']}"
        case "finished":
            return f"job finished at step {fields['position']['step']}"
        case _:
            return f"{order.event.replace('_', ' ')}: {', '.join(f'{k} {v}' for k, v in fields.items())}"


def _names(instances: list[str]) -> str:
    return ", ".join(instances) or "none"
