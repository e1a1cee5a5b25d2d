"""The package: what is in the zip, in the templates, and that Lambda could run it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import boto3
from deploy_packages import LINT, ROOT, build, logical, names, run, template
from dyntrain.controller.adapters.metrics import GAUGE_UNITS, NAMESPACE
from dyntrain.controller.core.decisions.alarms import METRICS
from dyntrain.controller.local.lambdas.packaged import packaged_template

import app

LIBRARIES = {
    "chalice",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions.py",
    "typing_inspection",
    "aws_lambda_powertools",
    "cronsim",
    "jmespath",
}
FUNCTIONS = {source.name for source in app.app.event_sources}


def resources(package: Path, kind: str) -> dict[str, Any]:
    return {name: entry for name, entry in template(package)["Resources"].items() if entry["Type"] == kind}


def test_the_zip_holds_the_app_the_controller_and_their_libraries_and_nothing_else(package: Path) -> None:
    files = names(package)
    tops = {name.partition("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info") and not top.endswith(".data")} == LIBRARIES | {
        "app.py",
        "dyntrain",
        "__pycache__",
    }
    # its runtime, not the packager
    assert sum(name.startswith("chalice/") and name.endswith(".py") for name in files) == 2


def test_the_zip_has_every_room_of_the_controller_but_what_people_run_on_their_own_machines(
    package: Path, tree: Path
) -> None:
    modules = {path.relative_to(tree).as_posix() for path in (tree / "controller").rglob("*.py")}
    rooms = ("controller/local/", "controller/cli/", "controller/dashboard/", "controller/jobs/submission/")
    people = tuple(
        f"controller/adapters/{name}.py" for name in ("account", "stacks", "submission", "board_bucket", "logs")
    )
    people += ("controller/jobs/usage.py", "controller/core/history/bill.py")
    people += ("controller/contract/gpu_families.py", "controller/contract/command_words.py")
    people += ("controller/core/decisions/arrows.py",)
    kept_back = {name for name in modules if name.startswith((*rooms, *people))}
    assert "controller/cli/main.py" in kept_back
    ours = {name.removeprefix("dyntrain/") for name in names(package) if name.startswith("dyntrain/")}
    assert {name for name in ours if "__pycache__/" not in name} == modules - kept_back | {"__init__.py"}


def test_every_module_of_the_zip_can_be_imported_where_nothing_else_of_ours_is(package: Path, tmp_path: Path) -> None:
    """What the checkout supplies, Lambda has not: a module that was left out ends every event in an ImportError."""
    with zipfile.ZipFile(package / "deployment.zip") as archive:
        archive.extractall(tmp_path)
    provided = tmp_path / "provided"  # by Lambda: boto3 and what it needs
    provided.mkdir()
    for name in ("boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six.py"):
        (provided / name).symlink_to(Path(boto3.__file__).parents[1] / name)
    program = f"""
import importlib, json, pkgutil, sys
sys.path[:0] = [{str(tmp_path)!r}, {str(provided)!r}]
import app, dyntrain
found = [module.name for module in pkgutil.walk_packages(dyntrain.__path__, "dyntrain.")]
for name in found:
    importlib.import_module(name)
print(json.dumps(found))
"""
    done = run(sys.executable, "-I", "-S", "-B", "-c", program)
    assert done.returncode == 0, done.stderr
    assert "dyntrain.controller.loops.converge" in json.loads(done.stdout)


def test_the_zip_brings_the_bytecode_of_what_its_functions_import(package: Path, tmp_path: Path) -> None:
    """Lambda's copy cannot be written to, so each cold start would compile it all again: about as long as everything
    else of a first event.
    """
    with zipfile.ZipFile(package / "deployment.zip") as archive:
        archive.extractall(tmp_path)
    site = Path(boto3.__file__).parents[1]
    program = f"""
import importlib.util, json, os, sys
sys.path[:0] = [{str(tmp_path)!r}, {str(site)!r}]
import app, dyntrain.controller.loops.converge, dyntrain.controller.loops.resync, dyntrain.controller.pool.rebalance
import dyntrain.controller.adapters.webhook
app.wiring.aws_pool_ports("facts")
specs = {{name: getattr(module, "__spec__", None) for name, module in sys.modules.items()}}
ours = {{name: spec for name, spec in specs.items() if spec and (spec.origin or "").startswith({str(tmp_path)!r})}}
cached = {{name: spec.cached for name, spec in ours.items() if spec.cached}}
heads = {{name: open(path, "rb").read(8) if os.path.exists(path) else b"" for name, path in cached.items()}}
good = importlib.util.MAGIC_NUMBER + bytes([1, 0, 0, 0])
print(json.dumps([len(heads), [name for name, head in heads.items() if head != good]]))
"""
    done = run(sys.executable, "-I", "-S", "-B", "-c", program)
    assert done.returncode == 0, done.stderr
    count, not_compiled = json.loads(done.stdout)
    assert count > 100
    assert not_compiled == []


def test_the_zip_is_below_four_megabytes_for_both_architectures_with_the_right_binary(
    package: Path, tree: Path, tmp_path: Path
) -> None:
    arm = build(tree, "dev", "arm64", tmp_path / "dev-arm64")
    for built, machine in ((package, "x86_64"), (arm, "aarch64")):
        assert (built / "deployment.zip").stat().st_size <= 4_000_000
        assert [name for name in names(built) if name.endswith(".so")] == [
            f"pydantic_core/_pydantic_core.cpython-3{sys.version_info[1]}-{machine}-linux-gnu.so"
        ]
    assert {
        tuple(entry["Properties"]["Architectures"]) for entry in resources(arm, "AWS::Serverless::Function").values()
    } == {("arm64",)}
    levels = [
        next(iter(resources(built, "AWS::Serverless::Function").values()))["Properties"]["Environment"]["Variables"]
        for built in (package, arm)
    ]
    assert [level["POWERTOOLS_LOG_LEVEL"] for level in levels] == ["INFO", "DEBUG"]


def test_two_builds_are_the_same_bytes(package: Path, tree: Path, tmp_path: Path) -> None:
    (tree / "app.py").touch()  # a later date is no difference
    again = build(tree, "prod", "x86_64", tmp_path / "again")
    digests = [
        {name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in ("deployment.zip", "sam.json")}
        for built in (package, again)
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


def test_sam_and_translated_template_pass_the_linter_and_a_wrong_iam_action_does_not(
    package: Path, tmp_path: Path
) -> None:
    good = run(LINT / "cfn-lint", package / "sam.json", package / "translated.json")
    assert (good.returncode, good.stdout) == (0, "")
    wrong = tmp_path / "wrong.json"
    wrong.write_text(
        (package / "translated.json").read_text().replace("ssm:GetParametersByPath", "ssm:GetParametersByPaths")
    )
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


def test_the_dashboard_has_a_curve_for_each_gauge_of_this_stage(package: Path) -> None:
    (dashboard,) = resources(package, "AWS::CloudWatch::Dashboard").values()
    body = json.loads(dashboard["Properties"]["DashboardBody"]["Fn::Sub"])
    searches = [widget["properties"]["metrics"][0][0]["expression"] for widget in body["widgets"]]
    assert [re.findall(r'MetricName="(\w+)"', search)[0] for search in searches] == list(GAUGE_UNITS)
    assert all('{dyntrain,table,cluster} table="${FactsTable}"' in search for search in searches)


def test_everything_that_the_controller_counts_for_people_has_an_alarm_that_says_what_to_do(package: Path) -> None:
    """Without one a node held for days, or an orphan that costs money, would be a line in a log."""
    alarms = [
        entry["Properties"]
        for entry in resources(package, "AWS::CloudWatch::Alarm").values()
        if entry["Properties"]["Namespace"] == NAMESPACE
    ]
    assert sorted(alarm["MetricName"] for alarm in alarms) == sorted(METRICS)
    for alarm in alarms:
        assert alarm["Dimensions"] == [{"Name": "table", "Value": {"Ref": "FactsTable"}}], alarm["MetricName"]
        assert (alarm["Statistic"], alarm["TreatMissingData"], alarm["ComparisonOperator"]) == (
            "Sum",
            "notBreaching",
            "GreaterThanThreshold",
        )
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
                kept = event["Properties"]["RedrivePolicy" if event["Type"] == "SNS" else "DeadLetterConfig"]
                assert list(kept.values()) == [queue], name
                assert entry["Properties"]["EventInvokeConfig"]["DestinationConfig"]["OnFailure"] == {
                    "Type": "SQS",
                    "Destination": queue,
                }


def test_the_embedded_cloud_deploys_the_very_template_of_the_package(package: Path) -> None:
    """Else what is tried on a desk would say nothing about what is deployed."""
    deployed, embedded = template(package), json.loads(packaged_template("app:app", ROOT))
    places = {
        one["Properties"].pop("CodeUri")
        for content in (deployed, embedded)
        for one in content["Resources"].values()
        if one["Type"] == "AWS::Serverless::Function"
    }
    assert len(places) == 2, "only where the zip is may differ"
    assert embedded == deployed
