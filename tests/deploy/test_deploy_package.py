"""The package: what is in the zip, in the templates, and that Lambda could run it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from deploy_packages import LINT, ROOT, build, names, run, template
from moto.server import ThreadedMotoServer

import app
from controller.adapters.metrics import NAMESPACE
from controller.alarms import METRICS
from controller.local.table import load_resources, table_request

LIBRARIES = {
    "chalice",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions.py",
    "typing_inspection",
    "aws_lambda_powertools",
    "jmespath",
}
FUNCTIONS = {source.name for source in app.app.event_sources}
INSTANCE = "i-0123456789abcdef0"


def logical(function: str) -> str:
    return "".join(part.capitalize() for part in function.split("_"))


def resources(package: Path, kind: str) -> dict[str, Any]:
    return {name: entry for name, entry in template(package)["Resources"].items() if entry["Type"] == kind}


def test_the_zip_holds_the_app_the_controller_and_their_libraries_and_nothing_else(package: Path) -> None:
    found = names(package)
    tops = {name.partition("/")[0] for name in found}
    assert {top for top in tops if not top.endswith(".dist-info") and not top.endswith(".data")} == LIBRARIES | {"app.py", "controller"}
    assert sum(name.startswith("chalice/") for name in found) == 2  # its runtime, not the packager


def test_the_zip_has_every_module_of_the_controller_but_the_embedded_cloud_and_the_command_line(package: Path, tree: Path) -> None:
    modules = {path.relative_to(tree).as_posix() for path in (tree / "controller").rglob("*.py")}
    command_line = r"/(cli|cli_\w+|\w+_cli|memory|recorded|replay|provenance)\.py$"
    kept_back = {name for name in modules if name.startswith("controller/local/") or re.search(command_line, name)}
    assert "controller/cli.py" in kept_back
    assert {name for name in names(package) if name.startswith("controller/")} == modules - kept_back


def test_the_zip_is_below_four_megabytes_for_both_architectures_with_the_right_binary(package: Path, tree: Path, tmp_path: Path) -> None:
    arm = build(tree, "dev", "arm64", tmp_path / "dev-arm64")
    for built, machine in ((package, "x86_64"), (arm, "aarch64")):
        assert (built / "deployment.zip").stat().st_size <= 4_000_000
        assert [name for name in names(built) if name.endswith(".so")] == [
            f"pydantic_core/_pydantic_core.cpython-3{sys.version_info[1]}-{machine}-linux-gnu.so"
        ]
    assert {tuple(entry["Properties"]["Architectures"]) for entry in resources(arm, "AWS::Serverless::Function").values()} == {("arm64",)}
    levels = [
        next(iter(resources(built, "AWS::Serverless::Function").values()))["Properties"]["Environment"]["Variables"] for built in (package, arm)
    ]
    assert [level["POWERTOOLS_LOG_LEVEL"] for level in levels] == ["INFO", "DEBUG"]


def test_two_builds_are_the_same_bytes(package: Path, tree: Path, tmp_path: Path) -> None:
    (tree / "app.py").touch()  # a later date is no difference
    again = build(tree, "prod", "x86_64", tmp_path / "again")
    digests = [
        {name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in ("deployment.zip", "sam.json")} for built in (package, again)
    ]
    assert digests[0] == digests[1]


def test_requirements_are_the_locked_versions() -> None:
    """What the tests ran with is what is deployed."""
    locked = {entry["name"]: entry["version"] for entry in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if locked[line.partition("==")[0]] != line.partition("==")[2]] == []


def test_an_unknown_stage_or_architecture_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run(sys.executable, ROOT / ".chalice" / "package.py", "--stage", "qa", "--out", tmp_path / "qa")
    assert (done.returncode, done.stderr) == (
        1,
        "Error: no such package: STAGE=qa ARCH=x86_64; stages are dev, prod, architectures x86_64, arm64\n",
    )


def test_sam_and_translated_template_pass_the_linter_and_a_wrong_iam_action_does_not(package: Path, tmp_path: Path) -> None:
    good = run(LINT / "cfn-lint", package / "sam.json", package / "translated.json")
    assert (good.returncode, good.stdout) == (0, "")
    wrong = tmp_path / "wrong.json"
    wrong.write_text((package / "translated.json").read_text().replace("ssm:GetParametersByPath", "ssm:GetParametersByPaths"))
    bad = run(LINT / "cfn-lint", wrong)
    assert bad.returncode != 0
    assert "getparametersbypaths" in bad.stdout


def test_every_function_has_a_role_a_log_group_traces_and_alarms_of_its_own(package: Path) -> None:
    functions = resources(package, "AWS::Serverless::Function")
    assert set(functions) == {logical(name) for name in FUNCTIONS}
    roles = [entry["Properties"]["Role"]["Fn::GetAtt"][0] for entry in functions.values()]
    assert len(set(roles)) == len(functions)
    assert {entry["Properties"]["Tracing"] for entry in functions.values()} == {"Active"}
    groups = resources(package, "AWS::Logs::LogGroup").values()
    assert [entry["Properties"]["RetentionInDays"] for entry in groups] == [90] * len(functions)
    watched: dict[str, set[str]] = {}
    for alarm in resources(package, "AWS::CloudWatch::Alarm").values():
        assert alarm["Properties"]["AlarmActions"] == [{"Ref": "Alarms"}]
        for dimension in alarm["Properties"]["Dimensions"]:
            watched.setdefault(json.dumps(dimension["Value"]), set()).add(alarm["Properties"]["MetricName"])
    assert all({"Errors", "Throttles"} <= watched[json.dumps({"Ref": name})] for name in functions)
    assert "IteratorAge" in watched[json.dumps({"Ref": "Converge"})]
    assert "ApproximateNumberOfMessagesVisible" in watched[json.dumps({"Fn::GetAtt": ["DeadLetters", "QueueName"]})]


def test_everything_that_the_controller_counts_for_people_has_an_alarm_that_says_what_to_do(package: Path) -> None:
    """Without one a node held for days, or an orphan that costs money, would be a line in a log."""
    alarms = [entry["Properties"] for entry in resources(package, "AWS::CloudWatch::Alarm").values() if entry["Properties"]["Namespace"] == NAMESPACE]
    assert sorted(alarm["MetricName"] for alarm in alarms) == sorted(METRICS)
    for alarm in alarms:
        assert alarm["Dimensions"] == [{"Name": "table", "Value": {"Ref": "FactsTable"}}], alarm["MetricName"]
        assert (alarm["Statistic"], alarm["TreatMissingData"], alarm["ComparisonOperator"]) == ("Sum", "notBreaching", "GreaterThanThreshold")
    assert len({alarm["AlarmDescription"] for alarm in alarms}) == len(alarms)


def test_what_a_function_or_a_rule_gives_up_ends_in_the_dead_letters(package: Path) -> None:
    queue = {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    for name, entry in resources(package, "AWS::Serverless::Function").items():
        for event in entry["Properties"]["Events"].values():
            if event["Type"] == "DynamoDB":
                assert event["Properties"]["DestinationConfig"]["OnFailure"]["Destination"] == queue
                assert event["Properties"]["BisectBatchOnFunctionError"] is True
                assert event["Properties"]["StartingPosition"] == "TRIM_HORIZON"
            else:
                assert event["Properties"]["DeadLetterConfig"]["Arn"] == queue, name
                assert entry["Properties"]["EventInvokeConfig"]["DestinationConfig"]["OnFailure"] == {"Type": "SQS", "Destination": queue}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


PROGRAM = """
import json, sys, importlib
zip_folder, *runtime = sys.argv[1].split(":")
sys.path[:0] = [zip_folder, *runtime]  # as in Lambda: the zip before the runtime's own boto3
module, _, name = sys.argv[2].rpartition(".")
handler = getattr(importlib.import_module(module), name)
class Context:
    function_name = name; aws_request_id = "r"; invoked_function_arn = "a"; memory_limit_in_mb = 256
print("ANSWER " + json.dumps(handler(json.load(sys.stdin), Context())))
print("FROM " + json.dumps(sorted({m.split(".")[0] for m, v in sys.modules.items() if (getattr(v, "__file__", None) or "").startswith(zip_folder)})))
"""


def boto_only(folder: Path) -> Path:
    """What Lambda's runtime brings: boto3 with what it needs, and nothing else of our environment."""
    folder.mkdir(exist_ok=True)
    site = Path(boto3.__file__).parents[1]
    for name in ("boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six.py", "jmespath"):
        if name != "jmespath" and not (folder / name).exists():
            (folder / name).symlink_to(site / name)
    return folder


def test_the_zip_runs_as_in_lambda_events_in_facts_out_and_a_converge_on_them(package: Path, endpoint: str, tmp_path: Path) -> None:
    """Isolated interpreter, no site-packages: the zip, boto3 and nothing else; JSON in, JSON out, against moto."""
    unpacked, runtime = tmp_path / "task", boto_only(tmp_path / "runtime")
    with zipfile.ZipFile(package / "deployment.zip") as archive:
        archive.extractall(unpacked)
    keys = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    session = boto3.Session("x", "x", region_name="us-east-1")
    dynamodb, ssm = session.client("dynamodb", endpoint_url=endpoint), session.client("ssm", endpoint_url=endpoint)
    dynamodb.create_table(**table_request(load_resources(ROOT / ".chalice" / "resources.yaml"), "facts"))
    ssm.put_parameter(Name="/dyntrain/demo/policy", Type="String", Value='{"cluster": "demo"}')

    def invoke(function: str, event: object) -> tuple[Any, list[str]]:
        handler = template(package)["Resources"][logical(function)]["Properties"]["Handler"]
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, f"{unpacked}:{runtime}", handler],
            input=json.dumps(event),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": os.environ["PATH"], "DYNTRAIN_TABLE": "facts", "AWS_LAMBDA_FUNCTION_NAME": function, **keys},
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith(("ANSWER ", "FROM "))]
        return json.loads(lines[0]), json.loads(lines[1])

    key = "demo-aws-dl-cfn-elastic-worker"
    detail = {"changed-tag-keys": [key], "service": "ec2", "resource-type": "instance", "version": 1, "tags": {key: ""}}
    event = {
        "version": "0",
        "id": "e-1",
        "account": "123456789012",
        "region": "us-east-1",
        "time": "2026-01-02T03:04:05Z",
        "source": "aws.tag",
        "detail-type": "Tag Change on Resource",
        "resources": [f"arn:aws:ec2:us-east-1:123456789012:instance/{INSTANCE}"],
        "detail": detail,
    }
    first, loaded = invoke("on_tag_change", event)
    again, _ = invoke("on_tag_change", event)
    assert (first["kind"], again["kind"]) == ("applied", "unchanged")
    assert {"app", "chalice", "controller", "pydantic", "aws_lambda_powertools"} <= set(loaded)
    item = dynamodb.scan(TableName="facts")["Items"][0]
    converged, _ = invoke(
        "converge",
        {"Records": [{"eventName": "INSERT", "eventSourceARN": "s", "eventID": "1", "awsRegion": "r", "dynamodb": {"NewImage": item, "Keys": {}}}]},
    )
    assert converged["clusters"] == 1
    resynced, _ = invoke(
        "resync",
        {
            "version": "0",
            "id": "t",
            "account": "1",
            "region": "r",
            "time": "t",
            "source": "aws.events",
            "detail-type": "Scheduled Event",
            "resources": [],
            "detail": {},
        },
    )
    assert resynced["clusters"] == 1
