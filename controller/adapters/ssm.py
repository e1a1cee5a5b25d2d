"""Read and write the clusters' SSM parameters under `/dyntrain/`, and read the secrets of a deployment stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients, error_code, translated_errors
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.messages import Target, parameter
from dyntrain.controller.contract.stage import STAGES
from dyntrain.controller.contract.webhook import webhook_parameter
from dyntrain.controller.core.views.target import as_parameter

PARAMETERS_PATH = "/dyntrain/"
NAMES_PER_DELETION = 10  # names in one call of DeleteParameters


class SsmParameters:
    """The clusters' SSM parameters. Each written target contains the deployment stage `stage`, so that a cluster's
    coordinator knows which controller wrote the target.
    """

    def __init__(self, clients: Clients, stage: str | None = None) -> None:
        self._clients, self._stage = clients, stage

    def policies(self) -> Mapping[str, str]:
        """The text of each cluster's policy parameter, by cluster name. Secret parameters under the same path are not
        decrypted, and are ignored.
        """
        policy_texts = {}
        with translated_errors(f"reading the parameters under {PARAMETERS_PATH}"):
            parameter_pages = (
                self._clients.ssm()
                .get_paginator("get_parameters_by_path")
                .paginate(Path=PARAMETERS_PATH, Recursive=True, WithDecryption=False)
            )
            for page in parameter_pages:
                for entry in page["Parameters"]:
                    cluster, _, last_part = entry["Name"].removeprefix(PARAMETERS_PATH).partition("/")
                    if last_part == "policy":
                        policy_texts[cluster] = entry["Value"]
        return policy_texts

    def stages(self) -> Mapping[str, str]:
        with translated_errors(f"reading the parameters under {STAGES}"):
            pages = self._clients.ssm().get_paginator("get_parameters_by_path").paginate(Path=STAGES, Recursive=True)
            return {entry["Name"]: entry["Value"] for page in pages for entry in page["Parameters"]}

    def target(self, cluster: str) -> str | None:
        parameter_name = parameter(cluster, "target")
        with translated_errors(f"reading {parameter_name}"):
            try:
                return self._clients.ssm().get_parameter(Name=parameter_name)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise

    def put_target(self, cluster: str, target: Target, pointer: str) -> None:
        parameter_name = parameter(cluster, "target")
        target = target.model_copy(update={"stage": self._stage})
        with translated_errors(f"writing {parameter_name}"):
            self._clients.ssm().put_parameter(
                Name=parameter_name, Value=as_parameter(target, pointer), Type="String", Overwrite=True
            )

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        parameter_name = parameter(cluster, "policy")
        with translated_errors(f"writing {parameter_name}"):
            try:
                self._clients.ssm().put_parameter(Name=parameter_name, Value=text, Type="String", Overwrite=overwrite)
            except ClientError as error:
                if error_code(error) == "ParameterAlreadyExists":
                    return False
                raise
        return True

    def delete(self, cluster: str) -> Sequence[str]:
        deleted_names: list[str] = []
        with translated_errors(f"deleting the parameters under {PARAMETERS_PATH}{cluster}/"):
            parameter_pages = (
                self._clients.ssm()
                .get_paginator("get_parameters_by_path")
                .paginate(Path=f"{PARAMETERS_PATH}{cluster}/", Recursive=True, WithDecryption=False)
            )
            parameter_names = [entry["Name"] for page in parameter_pages for entry in page["Parameters"]]
            for start in range(0, len(parameter_names), NAMES_PER_DELETION):
                deleted_names += self._clients.ssm().delete_parameters(
                    Names=parameter_names[start : start + NAMES_PER_DELETION]
                )["DeletedParameters"]
        return sorted(deleted_names)


class SsmSecrets:
    """The secrets of a deployment stage. If `stage` is None, there are no secrets."""

    def __init__(self, clients: Clients, stage: str | None) -> None:
        self._clients, self._stage = clients, stage

    def webhook(self) -> str | None:
        if self._stage is None:
            return None
        parameter_name = webhook_parameter(self._stage)
        with translated_errors(f"reading {parameter_name}"):
            try:
                parameter = self._clients.ssm().get_parameter(Name=parameter_name, WithDecryption=True)["Parameter"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise
        if parameter["Type"] != "SecureString":
            raise Misconfigured(
                f"the parameter {parameter_name} holds a secret in plain text: delete it, and create it again as a "
                "SecureString"
            )
        return parameter["Value"]
