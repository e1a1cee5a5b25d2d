"""AWS adapters for jobs of any framework: job records in DynamoDB, job machines in EC2, and result files in S3."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients, error_code, translated_errors
from dyntrain.controller.adapters.dynamodb import DynamoTable
from dyntrain.controller.adapters.ec2 import VALUES_PER_FILTER, Ec2Instances
from dyntrain.controller.adapters.formats import format_attribute, format_of
from dyntrain.controller.contract.errors import Conflict, GiveUp, Quarantined
from dyntrain.controller.contract.job_files import Exit, exit_of, rank_exit_key, verdict_key
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import KEPT_SECONDS, JobRecord
from dyntrain.controller.jobs.verdict import Machine

log = logging.getLogger("dyntrain.jobs")

LIVE_JOBS_KEY = "-jobs-"  # the key of live jobs in the index by cluster; no cluster's name begins with a hyphen
UNREADABLE_ERROR_CODES = ("NoSuchKey", "NoSuchBucket", "AccessDenied")


class TableJobRecords(DynamoTable):
    def get(self, name: str) -> StoredJob | None:
        item = self._get(_record_key(name))
        return None if item is None else _stored_job(item)

    def put(self, stored: StoredJob, *, over: bool) -> None:
        record = stored.record
        item: dict[str, Any] = {
            **_record_key(record.name),
            "run": {"S": record.model_dump_json()},
            "version": {"N": str(stored.version + 1)},
            "wake": {"BOOL": False},
            **format_attribute(),
        }
        if over and (record.ended or not record.elastic):
            item["expires"] = {"N": str(int(record.changed + KEPT_SECONDS))}
        if not over:
            item["cluster"] = {"S": LIVE_JOBS_KEY}
        self._put(item, stored.version)

    def live_jobs(self) -> Sequence[StoredJob]:
        jobs: list[StoredJob] = []
        for item in self._cluster_items(LIVE_JOBS_KEY, "run"):
            try:
                jobs.append(_stored_job(item))
            except GiveUp as error:
                log.error("a job's record cannot be read and is ignored", extra={"problem": str(error)})
        return jobs

    def all(self) -> Sequence[StoredJob]:
        jobs: list[StoredJob] = []
        with translated_errors(f"looking for jobs in table {self._table}"):
            item_pages = (
                self._clients.dynamodb()
                .get_paginator("scan")
                .paginate(
                    TableName=self._table,
                    FilterExpression="begins_with(pk, :run)",
                    ExpressionAttributeValues={":run": {"S": "run#"}},
                )
            )
            for page in item_pages:
                jobs += map(_stored_job, page["Items"])
        return jobs

    def delete(self, stored: StoredJob) -> None:
        with translated_errors(f"deleting the job {stored.record.name}"):
            try:
                self._clients.dynamodb().delete_item(
                    TableName=self._table,
                    Key=_record_key(stored.record.name),
                    ConditionExpression="version = :version",
                    ExpressionAttributeValues={":version": {"N": str(stored.version)}},
                )
            except ClientError as error:
                if error_code(error) == "ConditionalCheckFailedException":
                    raise Conflict(
                        f"the job {stored.record.name} was not deleted, because its record was changed meanwhile"
                    ) from error
                raise


class Ec2JobMachines:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def of_runs(self, tokens: Iterable[str]) -> Sequence[Machine]:
        unique_tokens = sorted(set(tokens))
        machines: list[Machine] = []
        with translated_errors("describing the machines of jobs"):
            for start in range(0, len(unique_tokens), VALUES_PER_FILTER):
                instance_pages = (
                    self._clients.ec2()
                    .get_paginator("describe_instances")
                    .paginate(
                        Filters=[{"Name": "client-token", "Values": unique_tokens[start : start + VALUES_PER_FILTER]}]
                    )
                )
                for page in instance_pages:
                    for reservation in page["Reservations"]:
                        machines += map(machine_of, reservation.get("Instances", []))
        return machines

    def terminate(self, instances: Sequence[str]) -> Any:
        return Ec2Instances(self._clients).terminate(instances)


class BucketResults:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def verdict(self, record: JobRecord) -> Exit | None:  # the stored result of the run
        return self._read(record.bucket, verdict_key(record.name, record.run))

    def exit_codes(self, record: JobRecord, ranks: Iterable[int]) -> Mapping[int, int | None]:
        exit_files = {rank: self._read(record.bucket, rank_exit_key(record.name, record.run, rank)) for rank in ranks}
        return {rank: exit_file.code for rank, exit_file in exit_files.items() if exit_file is not None}

    def _read(self, bucket: str, key: str) -> Exit | None:  # reads exit.json
        with translated_errors(f"reading s3://{bucket}/{key}"):
            try:
                exit_file_bytes = self._clients.s3().get_object(Bucket=bucket, Key=key)["Body"].read(1_000_000)
                return exit_of(exit_file_bytes.decode("utf-8", "replace"))
            except ValueError:
                return None
            except ClientError as error:
                if error_code(error) in UNREADABLE_ERROR_CODES:
                    return None
                raise


def job_ports(clients: Clients, table: str, clock: Any) -> JobPorts:
    return JobPorts(TableJobRecords(clients, table), Ec2JobMachines(clients), BucketResults(clients), clock)


def machine_of(instance: Mapping[str, Any]) -> Machine:
    launch_time = instance.get("LaunchTime")
    return Machine(
        instance=instance["InstanceId"],
        rank=int(instance.get("AmiLaunchIndex", 0)),
        state=instance["State"]["Name"],
        token=instance.get("ClientToken", ""),
        address=instance.get("PrivateIpAddress"),
        why=instance.get("StateReason", {}).get("Code", ""),
        launched=launch_time.timestamp() if launch_time is not None else None,
    )


def _record_key(name: str) -> dict[str, Any]:
    return {"pk": {"S": f"run#{name}"}, "sk": {"S": "record"}}


def _stored_job(item: Mapping[str, Any]) -> StoredJob:
    format_of(item)
    try:
        return StoredJob(JobRecord.model_validate_json(item["run"]["S"]), int(item["version"]["N"]))
    except (KeyError, ValueError) as error:
        raise Quarantined(f"the record of {item['pk']['S']} cannot be read: {error}") from error
