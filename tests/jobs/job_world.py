"""A world in memory for jobs: the table, EC2 with client tokens, a bucket, and a clock that moves when told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dyntrain.controller.contract.errors import Conflict, Refused
from dyntrain.controller.contract.job_files import Exit, exit_of, rank_exit_key, verdict_key
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.code import PackedCode
from dyntrain.controller.jobs.submission.ports import RootVolume
from dyntrain.controller.jobs.submission.request import JobRequest
from dyntrain.controller.jobs.submission.submit import prepare, submit
from dyntrain.controller.jobs.verdict import Machine
from dyntrain.controller.jobs.watch import watch_jobs
from dyntrain.controller.loops.ports import ALL_DONE, Batch

BUCKET = "anybodys-jobs"
SUBMISSION = "0123456789ab"
PACKED = PackedCode(b"code", 1, "c0de")


def request(**changes: Any) -> JobRequest:
    fields: dict[str, Any] = {
        "name": "mnist",
        "code": ".",
        "nodes": 2,
        "instance_type": "g5.xlarge",
        "image": "ami-1",
        "bucket": BUCKET,
        "command": ("python3", "train.py"),
    }
    return JobRequest(**{**fields, **changes})


class Dead(Exception):
    """The submitting process was killed."""


class World:
    """Implements all ports of jobs itself. `failing` maps a method to what its next calls raise; a Dead counts before
    the call, or with `after` behind it.
    """

    region = "us-east-1"

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.table: dict[str, tuple[StoredJob, bool]] = {}
        self.machines: dict[str, Machine] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.objects: dict[tuple[str, str], bytes] = {}
        self.launches: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
        self.buckets = {BUCKET}
        self.root: RootVolume | None = RootVolume("/dev/sda1", 8)
        self.images = 0  # each time that it is asked for, a newer one is out
        self.failing: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}
        self.silent = 0  # nodes that give no sign of life
        self.unknown: set[str] = set()  # to TerminateInstances
        self.ports = JobPorts(self, self, self, lambda: self.now)

    def submit(self, wanted: JobRequest | None = None, fresh: str = SUBMISSION) -> Sequence[Machine]:
        prepared = prepare(self.ports, self, wanted or request(), PACKED, fresh)
        return submit(self.ports, self, prepared, lambda text: None)

    def record(self, name: str = "mnist") -> JobRecord:
        return self.table[name][0].record

    def resync(self, later: float = 60.0) -> dict[str, int]:
        self.now += later
        return watch_jobs(self.ports)

    def living(self) -> list[int]:
        return sorted(machine.rank for machine in self.machines.values() if machine.living)

    def end(self, rank: int, why: str = "Client.InstanceInitiatedShutdown") -> None:
        for name, machine in self.machines.items():
            if machine.rank == rank:
                self.machines[name] = replace(machine, state="terminated", why=why)

    def says(self, ended: Exit) -> None:
        """A node's own exit.json."""
        record = self.record()
        self.objects[BUCKET, rank_exit_key(record.name, record.run, ended.rank)] = ended.text().encode()

    def settles(self, verdict: Exit) -> None:
        record = self.record()
        self.objects[BUCKET, verdict_key(record.name, record.run)] = verdict.text().encode()

    def _called(self, method: str) -> None:
        if self.failing.get(method):
            raise self.failing[method].pop(0)

    def _done(self, method: str) -> None:
        if self.after.get(method):
            raise self.after[method].pop(0)

    # ---- JobRecords; of several methods `get` is also the bucket's, by its arguments

    def get(self, name: str, key: str | None = None) -> Any:
        if key is not None:
            return self.objects.get((name, key))
        return self.table[name][0] if name in self.table else None

    def put(self, what: Any, *rest: Any, over: bool = False) -> None:
        self._called("put_object" if rest else "put_record")
        if rest:
            key, content = rest
            self.objects[what, key] = content
            self._done("put_object")
            return
        known = self.table.get(what.record.name)
        if (known[0].version if known else 0) != what.version:
            raise Conflict("changed meanwhile")
        self.table[what.record.name] = (StoredJob(what.record, what.version + 1), over)

    def live_jobs(self) -> Sequence[StoredJob]:
        return [stored for stored, over in self.table.values() if not over]

    def all(self) -> Sequence[StoredJob]:
        return [stored for stored, _ in self.table.values()]

    def delete(self, what: Any, keys: Sequence[str] | None = None) -> None:
        if keys is not None:
            for key in keys:
                self.objects.pop((what, key), None)
            return
        if self.table[what.record.name][0].version != what.version:
            raise Conflict("changed meanwhile")
        del self.table[what.record.name]

    # ---- JobMachines

    def of_runs(self, tokens: Iterable[str]) -> Sequence[Machine]:
        wanted = set(tokens)
        return [machine for machine in self.machines.values() if machine.token in wanted]

    def terminate(self, instances: Sequence[str]) -> Batch:
        self._called("terminate")
        for name in set(instances) - self.unknown:
            self.machines[name] = replace(self.machines[name], state="terminated", why="Client.UserInitiatedShutdown")
        return Batch(missing=frozenset(self.unknown)) if self.unknown else ALL_DONE

    # ---- JobResults

    def verdict(self, record: JobRecord) -> Exit | None:
        return self._exit(verdict_key(record.name, record.run))

    def exit_codes(self, record: JobRecord, ranks: Iterable[int]) -> dict[int, int | None]:
        exits = {rank: self._exit(rank_exit_key(record.name, record.run, rank)) for rank in ranks}
        return {rank: ended.code for rank, ended in exits.items() if ended is not None}

    def _exit(self, key: str) -> Exit | None:
        content = self.objects.get((BUCKET, key))
        return None if content is None else exit_of(content.decode())

    # ---- Launcher

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def image_for(self, instance_type: str) -> str:
        self.images += 1
        return f"ami-{self.images}"

    def root_volume_of(self, image: str) -> RootVolume | None:
        return self.root

    def check_bucket(self, bucket: str) -> None:
        if bucket not in self.buckets:
            raise Refused("404", f"there is no bucket {bucket}")

    def check_launch(self, fields: Mapping[str, Any]) -> None:
        self._called("check_launch")

    def launch(self, fields: Mapping[str, Any]) -> Sequence[Machine]:
        self._called("launch")
        token = fields["ClientToken"]
        if token not in self.launches:
            names = [f"i-{len(self.machines) + rank:017x}" for rank in range(fields["MaxCount"])]
            self.launches[token] = (fields, names)
            for rank, name in enumerate(names):
                self.machines[name] = Machine(name, rank, "running", token, f"10.0.0.{rank + 4}")
                self.tags[name] = {tag["Key"]: tag["Value"] for tag in fields["TagSpecifications"][0]["Tags"]}
        known, names = self.launches[token]
        if known != fields:
            raise Refused("IdempotentParameterMismatch", "other parameters")
        self._done("launch")
        return [self.machines[name] for name in names]

    def tag(self, instances: Sequence[str], tags: Mapping[str, str]) -> None:
        self._called("tag")
        for name in instances:
            self.tags[name].update(tags)

    def size(self, bucket: str, key: str) -> int:
        if (bucket, key) not in self.objects:
            raise Refused("404", f"there is no s3://{bucket}/{key}")
        return len(self.objects[bucket, key])

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> None:
        self.objects[bucket, key] = self.objects[source]

    def alive_count(self, record: JobRecord) -> int:
        return record.nodes - self.silent

    def price(self, instance_type: str, *, spot: bool) -> float | None:
        return None

    def plan(self) -> dict[str, Any]:
        record = self.record()
        plan: dict[str, Any] = json.loads(self.objects[BUCKET, f"{record.name}/runs/{record.run}/plan.json"])
        return plan
