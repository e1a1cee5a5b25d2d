"""Build the CloudFormation template of a Chalice app. The result is the template that `make package` writes, but
without the zip file of the code. Chalice's template is merged with `.chalice/resources.yaml`.

A separate process imports the app with the environment variables of the deployed stage, as Chalice does.
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

IMPORT_SECONDS = 30.0  # limit for the import of the app
DEPLOYED_STAGE = "prod"  # the embedded cloud deploys this stage's configuration under another stage name
ZIP_NAME = "deployment.zip"
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR")


def with_stage_defaults(template: dict[str, Any], config: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The template, with the stage and the stage's tag suffix as default values of parameters. The template's resource
    `StageIdentity` gets a value that says how the stage verifies identity documents.
    """
    stage_variables = _stage_variables(config, stage)
    for parameter_name, default_value in (
        ("Stage", stage),
        ("ElasticSuffix", stage_variables.get("DYNTRAIN_ELASTIC_SUFFIX")),
    ):
        if default_value is not None and parameter_name in template.get("Parameters", {}):
            template["Parameters"][parameter_name]["Default"] = default_value
    if "StageIdentity" in template["Resources"]:
        template["Resources"]["StageIdentity"]["Properties"]["Value"] = identity_setting_kind(
            stage_variables.get(IDENTITY_KEYS, "")
        )
    return template


def _stage_variables(config: Mapping[str, Any], stage: str) -> dict[str, str]:
    return {**config.get("stages", {}).get(stage, {}).get("environment_variables", {})}


@functools.cache
def packaged_template(app: str, directory: Path) -> str:
    """The app's CloudFormation template as JSON. The result is cached, so later changes of the app have no effect in
    this process.

    Raises AppNotLoaded when the app cannot be imported, and ResourcesInvalid when a file in `.chalice` cannot be read.
    """
    chalice_folder = directory / ".chalice"
    try:
        config = json.loads((chalice_folder / "config.json").read_text(encoding="utf-8"))
        (chalice_folder / "resources.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ResourcesInvalid(f"cannot read a file of the controller's stack: {error}") from error
    inherited_variables = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    python_path = os.pathsep.join([str(directory), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    fixed_variables = {"AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", __name__, app, str(directory))
    try:
        process = subprocess.run(
            command,
            cwd=directory,  # the user's folder may have modules of the same names
            env=inherited_variables | fixed_variables | _stage_variables(config, DEPLOYED_STAGE),
            capture_output=True,
            text=True,
            timeout=patient(IMPORT_SECONDS),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AppNotLoaded(f"the Chalice app {app!r} was not imported within {error.timeout:.0f} s") from error
    if process.returncode:
        failure_reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise AppNotLoaded(f"the Chalice app {app!r} cannot be loaded: {failure_reason}")
    return process.stdout.splitlines()[-1]  # the app may print lines before


def template_of(app: Any, directory: Path) -> dict[str, Any]:
    """The app's template, as written by `chalice package --stage prod --merge-template .chalice/resources.yaml`."""
    import botocore.session
    import yaml  # type: ignore[import-untyped]
    from chalice.awsclient import TypedAWSClient
    from chalice.config import Config
    from chalice.deploy.appgraph import ApplicationGraphBuilder, DependencyBuilder
    from chalice.deploy.deployer import BuildStage, InjectDefaults, LambdaEventSourcePolicyInjector, PolicyGenerator
    from chalice.package import PackageOptions, ResourceBuilder, SAMTemplateGenerator, TemplateDeepMerger
    from chalice.policy import AppPolicyGenerator
    from chalice.utils import OSUtils

    class SetZipName:
        def handle(self, config: Any, resource: Any) -> None:
            if type(resource).__name__ == "DeploymentPackage":
                resource.filename = ZIP_NAME

    file_config = json.loads((directory / ".chalice" / "config.json").read_text(encoding="utf-8"))
    config = Config(
        chalice_stage=DEPLOYED_STAGE,
        user_provided_params={"project_dir": str(directory), "chalice_app": app},
        config_from_disk=file_config,
    )
    os_utilities = OSUtils()
    policy_generator = PolicyGenerator(policy_gen=AppPolicyGenerator(osutils=os_utilities), osutils=os_utilities)
    build_steps: list[Any] = [InjectDefaults(), SetZipName(), policy_generator, LambdaEventSourcePolicyInjector()]
    resource_builder = ResourceBuilder(ApplicationGraphBuilder(), DependencyBuilder(), BuildStage(steps=build_steps))
    options = PackageOptions(TypedAWSClient(botocore.session.Session()))
    template = SAMTemplateGenerator(config, options).generate(
        resource_builder.construct_resources(config, DEPLOYED_STAGE)
    )
    resources = yaml.safe_load((directory / ".chalice" / "resources.yaml").read_text(encoding="utf-8"))
    merged_template: dict[str, Any] = TemplateDeepMerger().merge(resources, template)
    return with_stage_defaults(merged_template, file_config, DEPLOYED_STAGE)


def main() -> int:
    from dyntrain.controller.local.lambdas.runtime import load_app

    print(json.dumps(template_of(load_app(sys.argv[1]), Path(sys.argv[2]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
