"""Handles users' requests to launch training on a cluster that waits for a launch, or to stop this training. Pure."""

from __future__ import annotations

import shlex

from dyntrain.training import journal
from dyntrain.training.protocol.node_messages import EndRequest, Launch, LaunchAnswer, Launched
from dyntrain.training.session.job.state import JobState, Phase
from dyntrain.training.session.orders import Journal, Order, ToNode
from dyntrain.training.session.phases.ending import fail

MOST_SHOWN = 200  # the most characters of a command in a message


def handle_launch_request(job: JobState, instance: str, launch: Launch, now: float) -> list[Order]:
    """Accept a launch, or refuse the launch if the job already has another launch.

    The launch command repeats a request whose answer was lost, so a repeated request is answered again.
    """
    is_repeated = job.launch is not None and job.launch.request == launch.request
    refusal = "" if is_repeated else _refusal_reason(job, instance)
    launch_is_ending = job.options.waits and job.phase is Phase.OVER
    answer = LaunchAnswer(
        request=launch.request, job=job.options.job, refused=refusal, passing=bool(refusal) and launch_is_ending
    )
    answer_order = ToNode(instance, answer)
    if refusal or is_repeated:
        return [answer_order]
    job.launch, job.since = launch, now  # the wait for workers begins
    notices = [ToNode(node, Launched(launch=launch)) for node in job.roster.nodes]
    return [Journal(journal.JobLaunched(launch=launch, at=now)), *notices, answer_order]


def _refusal_reason(job: JobState, instance: str) -> str:
    node = job.roster.nodes.get(instance)
    if not job.options.waits:
        return (
            "this cluster trains the command of its configuration: make it with an empty TrainingCommand, to launch on "
            "its master"
        )
    if node is None or not node.hello.base:
        return "only base nodes take a launch: log in on the master"
    if job.phase is Phase.OVER:
        return "the previous launch is just ending"
    if job.launch is not None:
        command = shlex.join(job.launch.command)[:MOST_SHOWN]
        return f"{job.options.job} trains already: {command}, in {job.launch.directory}; wait for its end"
    return ""


def handle_end_request(job: JobState, instance: str, message: EndRequest, now: float) -> list[Order]:
    """Stop the launch that the request names, unless another launch is active now."""
    is_current = job.launch is not None and job.launch.request == message.request
    refusal = "" if is_current else "that launch is not in force any more"
    answer_order = ToNode(instance, LaunchAnswer(request=message.request, job=job.options.job, refused=refusal))
    if refusal or job.phase is Phase.OVER:
        return [answer_order]
    return [answer_order, *fail(job, "a person ended it", now)]
