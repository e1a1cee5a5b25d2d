"""The reasons for the statuses of nodes, each with a sentence that explains the reason to users."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    TERMINATED = "TERMINATED"
    TERMINATE_ISSUED = "TERMINATE_ISSUED"
    TAGS_UNKNOWN = "TAGS_UNKNOWN"
    NOT_LOOKED_AT = "NOT_LOOKED_AT"
    NO_BOOTSTRAP = "NO_BOOTSTRAP"
    PREPARING = "PREPARING"
    NEVER_HEARD = "NEVER_HEARD"
    IN_WARM_POOL = "IN_WARM_POOL"
    PREPARE_FAILED = "PREPARE_FAILED"
    WORKER_FAILED = "WORKER_FAILED"
    WAITS_FOR_TARGET = "WAITS_FOR_TARGET"
    ABOVE_MAXIMUM = "ABOVE_MAXIMUM"
    NO_JOB = "NO_JOB"
    NO_BASE_NODE = "NO_BASE_NODE"
    WAITS_FOR_BOUNDARY = "WAITS_FOR_BOUNDARY"
    JOINING = "JOINING"
    TRAINING = "TRAINING"
    HELD_BY_MINIMUM = "HELD_BY_MINIMUM"
    BASE_PROTECTED = "BASE_PROTECTED"
    BASE_UNTAGGED = "BASE_UNTAGGED"
    WAITS_FOR_WINDOW = "WAITS_FOR_WINDOW"
    LEAVES_AT_BOUNDARY = "LEAVES_AT_BOUNDARY"
    LEAVE_UNCONFIRMED = "LEAVE_UNCONFIRMED"
    UNTAGGED = "UNTAGGED"
    NEVER_ASKED = "NEVER_ASKED"
    GROUP_TERMINATES = "GROUP_TERMINATES"
    INTERRUPTED = "INTERRUPTED"
    ABANDONED = "ABANDONED"
    HOOK_CAP = "HOOK_CAP"
    UNKNOWN_TO_EC2 = "UNKNOWN_TO_EC2"
    STOPPED = "STOPPED"
    JOB_OVER = "JOB_OVER"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    IDLE = "IDLE"
    OVERTIME = "OVERTIME"
    NOT_OWNED = "NOT_OWNED"
    GROUP_REFUSES = "GROUP_REFUSES"
    REPLACED = "REPLACED"

    @property
    def sentence(self) -> str:
        return _REASON_SENTENCES[self]

    def sentence_for(self, over: bool) -> str:
        """The sentence that explains the reason to users. If the job has ended, the sentence does not advise users to
        launch another instance, because the new instance would be terminated at once.
        """
        return self.sentence.partition("; launch")[0] if over else self.sentence

    def change_advice(self, base: bool, over: bool = False) -> str:
        """A text that tells users what would change the node's status. For a `base` node the text does not mention the
        elastic tag. If the job is `over`, the text does not advise users to launch another instance.
        """
        if over and self in _FINAL_REASONS:
            return "nothing: the node leaves or has left, and no other node joins because the job is over"
        return _BASE_CHANGE_TEXTS.get(self, _CHANGE_TEXTS[self]) if base else _CHANGE_TEXTS[self]


_REASON_SENTENCES = {
    Reason.TERMINATED: "the instance is terminated",
    Reason.TERMINATE_ISSUED: "its termination was already ordered, which cannot be taken back; launch another instance",
    Reason.TAGS_UNKNOWN: "its tags have not been read yet",
    Reason.NOT_LOOKED_AT: "the controller has not looked at it yet",
    Reason.NO_BOOTSTRAP: "it was tagged by hand and no bootstrap has been heard of on it; start node_bootstrap there",
    Reason.PREPARING: "it has not reported that it is prepared",
    Reason.NEVER_HEARD: (
        "nothing has been heard of it since it was launched: its user data died, or it cannot reach EventBridge; "
        "`aws ec2 get-console-output` has why"
    ),
    Reason.IN_WARM_POOL: "it waits in the group's warm pool",
    Reason.PREPARE_FAILED: (
        "its preparation failed; see the detail and mend the script: it tries again by itself, or when it is rebooted"
    ),
    Reason.WORKER_FAILED: (
        "its worker process failed again and again and was given up; see the detail and the node's log"
    ),
    Reason.WAITS_FOR_TARGET: "it is prepared and will be in the next target",
    Reason.ABOVE_MAXIMUM: "the cluster has its maximum of workers; it waits for a place",
    Reason.NO_JOB: "no coordinator has been heard of within its lease; it joins when a job runs",
    Reason.NO_BASE_NODE: "the job is paused: no base node is left that could run the coordinator",
    Reason.WAITS_FOR_BOUNDARY: "it joins at the next boundary",
    Reason.JOINING: "it is being taken into a new generation",
    Reason.TRAINING: "it takes part in training",
    Reason.HELD_BY_MINIMUM: "held by the minimum: without it the cluster would fall below min_workers",
    Reason.BASE_PROTECTED: "base nodes are protected: it stays although its machine is being taken away",
    Reason.BASE_UNTAGGED: "its base tag was taken away, which makes no base node leave; put the tag back",
    Reason.WAITS_FOR_WINDOW: "it was asked to leave, and trains on until one of the policy's leave_windows opens",
    Reason.LEAVES_AT_BOUNDARY: "it trains on until the next boundary, then leaves",
    Reason.LEAVE_UNCONFIRMED: "the coordinator has not confirmed the target without it",
    Reason.UNTAGGED: "its elastic tag was removed",
    Reason.NEVER_ASKED: "it carries neither the elastic tag nor the base tag",
    Reason.GROUP_TERMINATES: "its Auto Scaling group is terminating it",
    Reason.ABANDONED: "its launch was abandoned; the group terminates and replaces it",
    Reason.HOOK_CAP: "its preparation outlasted the cap of the launch hook; the launch is abandoned, once",
    Reason.UNKNOWN_TO_EC2: "EC2 does not show it; it is asked for again, each time after a longer pause",
    Reason.INTERRUPTED: "AWS gave notice that it takes the machine",
    Reason.STOPPED: "the instance is stopping or stopped",
    Reason.JOB_OVER: "the job is over; elastic nodes are released, and base nodes go if after_job says so",
    Reason.JOB_FINISHED: "it takes part in the next job; this one has finished",
    Reason.JOB_FAILED: "it takes part in the next job; this one failed",
    Reason.IDLE: "the cluster had no job for longer than its policy's idle_hours; it is closed, as after_job says",
    Reason.OVERTIME: "the cluster has run for its policy's max_hours; it is closed, as after_job says",
    Reason.NOT_OWNED: "released; it is left running because the cluster did not launch it",
    Reason.GROUP_REFUSES: "the group refused to terminate it; see the detail, lower the group's minimum",
    Reason.REPLACED: "another base node takes its place",
}

_FINAL_REASONS = (
    Reason.TERMINATED,
    Reason.TERMINATE_ISSUED,
    Reason.GROUP_TERMINATES,
    Reason.ABANDONED,
    Reason.HOOK_CAP,
)
_UNTAG_TO_LEAVE = "removing its elastic tag asks it to leave"
_LAUNCH_ANOTHER = "nothing; launch another instance"
_CHANGE_TEXTS = {
    Reason.TERMINATED: _LAUNCH_ANOTHER,
    Reason.TERMINATE_ISSUED: _LAUNCH_ANOTHER,
    Reason.TAGS_UNKNOWN: "the next resync reads its tags",
    Reason.NOT_LOOKED_AT: "the controller's next pass: at once, or at the next resync",
    Reason.NO_BOOTSTRAP: "a report of node_bootstrap that it is prepared; or removing its elastic tag",
    Reason.PREPARING: "its report that it is prepared, or that preparing failed",
    Reason.NEVER_HEARD: "its first report; or its replacement",
    Reason.IN_WARM_POOL: "its group takes it out of the warm pool",
    Reason.PREPARE_FAILED: "another prepare-data on the volume, mark-prepared on the node, a reboot; its replacement",
    Reason.WORKER_FAILED: "a reboot, after which its bootstrap reports again; or its replacement",
    Reason.WAITS_FOR_TARGET: "the next pass puts it into the target",
    Reason.ABOVE_MAXIMUM: "another worker leaves, or a higher max_workers in the policy",
    Reason.NO_JOB: "a coordinator that reports its job",
    Reason.NO_BASE_NODE: "a base node that is prepared: it takes the job over",
    Reason.WAITS_FOR_BOUNDARY: "the next boundary of the job",
    Reason.JOINING: "its first step in the new generation",
    Reason.TRAINING: _UNTAG_TO_LEAVE,
    Reason.HELD_BY_MINIMUM: "another worker that joins, a lower min_workers in the policy, or its elastic tag put back",
    Reason.BASE_PROTECTED: "the machine comes back, or is replaced on purpose",
    Reason.BASE_UNTAGGED: "the tag dyntrain:base put back; to take it out of the job, name a successor",
    Reason.WAITS_FOR_WINDOW: (
        "the window opens; the tag dyntrain:leave=now on the instance, or a policy without leave_windows; or, if its "
        "elastic tag was removed, that put back"
    ),
    Reason.LEAVES_AT_BOUNDARY: "the next boundary of the job; or its elastic tag put back before that",
    Reason.LEAVE_UNCONFIRMED: "the coordinator's next report",
    Reason.UNTAGGED: "its elastic tag put back, as long as its termination is not ordered",
    Reason.NEVER_ASKED: "the elastic tag asks it to join",
    Reason.GROUP_TERMINATES: "nothing; raise the group's desired capacity for another instance",
    Reason.ABANDONED: "nothing; the group replaces it",
    Reason.HOOK_CAP: (
        "nothing; the group replaces it; a higher hook_cap_seconds in the policy gives the next one more time"
    ),
    Reason.UNKNOWN_TO_EC2: "EC2 shows it again; or its terminated event",
    Reason.INTERRUPTED: "nothing before the deadline; a machine that outlives it by a quarter of an hour may stay",
    Reason.STOPPED: "starting the instance again, after which its bootstrap reports",
    Reason.JOB_OVER: "a new job; for a base node that was stopped, starting it again",
    Reason.JOB_FINISHED: "a new job",
    Reason.JOB_FAILED: "a new job",
    Reason.IDLE: "starting the machine again",
    Reason.OVERTIME: "starting the machine again, which gives it max_hours more",
    Reason.NOT_OWNED: "its elastic tag put back",
    Reason.GROUP_REFUSES: "a lower minimum of its group; it is tried again every minute",
    Reason.REPLACED: "before the boundary: its successor's tag dyntrain:base set to another value; afterwards nothing",
}
_BASE_CHANGE_TEXTS = {
    Reason.TRAINING: (
        "the job's end, or a successor: `dyntrain base replace` names one; no tag asks a base node to leave"
    ),
}
