"""Build the template of a Chalice app that `make package` writes and `make deploy` gives to CloudFormation, but without
the zip. Chalice's template is merged with `.chalice/resources.yaml`.

A separate process imports the app, as Chalice does, with the environment variables of the stage.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.region_keys import identity_setting_kind
from dyntrain.controller.contract.settings import IDENTITY_KEYS
from dyntrain.controller.local.errors import AppNotLoaded, ResourcesInvalid
from dyntrain.controller.local.pace import patient

IMPORT_SECONDS = 30.0
STAGE = "prod"  # the embedded cloud deploys this stage's configuration under another stage name
ZIP = "deployment.zip"
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR")


def with_stage_defaults(template: dict[str, Any], config: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The template with defaults for the parameters: the stage and its tag suffix. `StageIdentity` gets the stage's way
    of verifying identity documents.
    """
    variables = _variables(config, stage)
    for name, value in (("Stage", stage), ("ElasticSuffix", variables.get("DYNTRAIN_ELASTIC_SUFFIX"))):
        if value is not None and name in template.get("Parameters", {}):
            template["Parameters"][name]["Default"] = value
    if "StageIdentity" in template["Resources"]:
        template["Resources"]["StageIdentity"]["Properties"]["Value"] = identity_setting_kind(
            variables.get(IDENTITY_KEYS, "")
        )
    return template


def _variables(config: Mapping[str, Any], stage: str) -> dict[str, str]:
    return {**config.get("stages", {}).get(stage, {}).get("environment_variables", {})}


@functools.cache
def packaged(app: str, directory: Path) -> str:
    """The template as JSON. The result is cached: later changes of the app are not read in this process.

    Raises AppNotLoaded, or ResourcesInvalid when a file in `.chalice` cannot be read.
    """
    chalice_folder = directory / ".chalice"
    try:
        config = json.loads((chalice_folder / "config.json").read_text(encoding="utf-8"))
        (chalice_folder / "resources.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ResourcesInvalid(f"cannot read a file of the controller's stack: {error}") from error
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    path = os.pathsep.join([str(directory), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    variables = {"AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", __name__, app, str(directory))
    try:
        process = subprocess.run(
            command,
            cwd=directory,  # the user's folder may have modules of the same names
            env=inherited | variables | _variables(config, STAGE),
            capture_output=True,
            text=True,
            timeout=patient(IMPORT_SECONDS),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AppNotLoaded(f"the Chalice app {app!r} was not imported within {error.timeout:.0f} s") from error
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise AppNotLoaded(f"the Chalice app {app!r} cannot be loaded: {reason}")
    return process.stdout.splitlines()[-1]  # the app may print lines before


def template_of(app: Any, directory: Path) -> dict[str, Any]:
    """The template as `chalice package --stage prod --merge-template .chalice/resources.yaml` writes it."""
    import botocore.session
    import yaml  # type: ignore[import-untyped]
    from chalice.awsclient import TypedAWSClient
    from chalice.config import Config
    from chalice.deploy.appgraph import ApplicationGraphBuilder, DependencyBuilder
    from chalice.deploy.deployer import BuildStage, InjectDefaults, LambdaEventSourcePolicyInjector, PolicyGenerator
    from chalice.package import PackageOptions, ResourceBuilder, SAMTemplateGenerator, TemplateDeepMerger
    from chalice.policy import AppPolicyGenerator
    from chalice.utils import OSUtils

    class NoZip:
        def handle(self, config: Any, resource: Any) -> None:
            if type(resource).__name__ == "DeploymentPackage":
                resource.filename = ZIP

    config_file = json.loads((directory / ".chalice" / "config.json").read_text(encoding="utf-8"))
    config = Config(
        chalice_stage=STAGE,
        user_provided_params={"project_dir": str(directory), "chalice_app": app},
        config_from_disk=config_file,
    )
    files = OSUtils()
    policies = PolicyGenerator(policy_gen=AppPolicyGenerator(osutils=files), osutils=files)
    steps: list[Any] = [InjectDefaults(), NoZip(), policies, LambdaEventSourcePolicyInjector()]
    builder = ResourceBuilder(ApplicationGraphBuilder(), DependencyBuilder(), BuildStage(steps=steps))
    options = PackageOptions(TypedAWSClient(botocore.session.Session()))
    template = SAMTemplateGenerator(config, options).generate(builder.construct_resources(config, STAGE))
    resources = yaml.safe_load((directory / ".chalice" / "resources.yaml").read_text(encoding="utf-8"))
    merged: dict[str, Any] = TemplateDeepMerger().merge(resources, template)
    return with_stage_defaults(merged, config_file, STAGE)


def main() -> int:
    from dyntrain.controller.local.lambdas.runtime import load

    print(json.dumps(template_of(load(sys.argv[1]), Path(sys.argv[2]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
