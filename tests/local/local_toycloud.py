"""A small cloud for the tests of the embedded cloud: a toy Chalice app that writes down what its handlers get."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import SignedDocument
from dyntrain.controller.contract.reports import NODE_DETAIL_TYPES, NodeReport
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.machines.identity import InstanceFacts, identity_document
from dyntrain.controller.local.options import Options

TOY = Path(__file__).parent / "toy"


@dataclass(frozen=True)
class ToyCloud:
    cloud: Cloud
    folder: Path

    def notes(self, handler: str) -> list[dict[str, Any]]:
        """What the handler got so far, oldest first; each with the process that ran it."""
        notes = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
        return [note for note in notes if note["handler"] == handler]

    def payloads(self, handler: str) -> list[Any]:
        return [note["payload"] for note in self.notes(handler)]

    def put(self, **detail: Any) -> str:
        """One event of the toy's own; returns its id."""
        entry = {"Source": "toy", "DetailType": "Toy", "Detail": json.dumps(detail), "Resources": ["toy-1"]}
        return str(self.cloud.client("events").put_events(Entries=[entry])["Entries"][0]["EventId"])

    def run_instance(self, **more: Any) -> str:
        answer = self.cloud.client("ec2").run_instances(
            ImageId="ami-12345678", MinCount=1, MaxCount=1, InstanceType="t3.micro", **more
        )
        return str(answer["Instances"][0]["InstanceId"])

    def trace(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.cloud.trace.path.read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]


QUIET = Options(
    duplicate_fraction=0.0,
    delivery_jitter=0.0,
    retry_delays=(0.1, 0.1),
    stream_retry_delay=0.05,
    boot_delay=0.05,
    describe_lag=0.0,
    behind=0.0,
    relaunch_delay=0.2,
    replacement_delay=0.2,
    machine_stop=2.0,
    machines=False,
)


def toy_cloud(folder: Path, options: Options = QUIET, **more: Any) -> Cloud:
    toy_options = replace(options, handler_environment={"TOY_DIRECTORY": str(folder)})
    return Cloud(app="toy_app:app", app_directory=TOY, options=toy_options, **more)


PRIVATE_IP = "10.0.0.9"


def signed_identity(cloud: Cloud, instance: str) -> SignedDocument:
    """What the metadata service of a machine that a test plays would give."""
    text = identity_document(
        InstanceFacts(
            instance, "ami-1", "c5.large", PRIVATE_IP, "us-east-1a", "us-east-1", cloud.account.number, 0.0, None
        )
    )
    return SignedDocument(document=text, signature=cloud.signer.sign(text))


def say(cloud: Cloud, source: str, kind: str, detail: dict[str, Any]) -> None:
    entry = {"Source": source, "DetailType": kind, "Detail": json.dumps(detail)}
    cloud.client("events").put_events(Entries=[entry])


def say_prepared(cloud: Cloud, instance: str, cluster: str = "demo") -> None:
    report = NodeReport(
        cluster=cluster,
        instance_id=instance,
        private_ip=PRIVATE_IP,
        attempt=1,
        outcome="prepared",
        at=time.time(),
        identity=signed_identity(cloud, instance),
    )
    say(cloud, "dyntrain.node", NODE_DETAIL_TYPES["prepared"], report.model_dump(mode="json"))
