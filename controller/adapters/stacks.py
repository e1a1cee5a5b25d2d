"""Manage CloudFormation stacks of jobs that run as clusters, and remove resources that block a stack's deletion. Only
the command line uses this module, never a Lambda function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients, error_code, translated_errors
from dyntrain.controller.adapters.ec2 import TEMPLATE_TAG
from dyntrain.controller.jobs.submission.ports import Hardware, Stack

SUBMISSION_TAG = "dyntrain:submission"  # names the job submission that created a stack
TEMPLATE_TYPE, FILE_SYSTEM_TYPE = "AWS::EC2::LaunchTemplate", "AWS::EFS::FileSystem"
GROUP_SUFFIXES = ("master", "base", "workers")  # suffixes of the names of the groups in the cluster's template
LIVING_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")  # EC2's states of instances


class AwsStacks:
    """The interface `Stacks`, implemented with AWS CloudFormation. `template` is the text of the cluster's
    CloudFormation template.
    """

    def __init__(self, clients: Clients, template: str) -> None:
        self._clients, self._template = clients, template

    def hardware(self, instance_type: str) -> Hardware:
        ec2: Any = self._clients.ec2()  # untyped, because the stubs do not know each instance type that people type
        with translated_errors(f"looking up {instance_type}"):
            description = ec2.describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"][0]
        gpu_makers = [gpu.get("Manufacturer", "") for gpu in description.get("GpuInfo", {}).get("Gpus", ())]
        return Hardware(
            "x86_64" in description.get("ProcessorInfo", {}).get("SupportedArchitectures", ()), "NVIDIA" in gpu_makers
        )

    def key_pairs(self) -> Sequence[str]:
        with translated_errors("listing the key pairs"):
            return [pair["KeyName"] for pair in self._clients.ec2().describe_key_pairs()["KeyPairs"]]

    def stack(self, name: str) -> Stack | None:
        with translated_errors(f"looking at the stack {name}"):
            try:
                description = self._clients.cloudformation().describe_stacks(StackName=name)["Stacks"][0]
            except ClientError as error:
                if error_code(error) == "ValidationError" and "does not exist" in str(error):
                    return None
                raise
        resources = self._resources(name)
        failed_resources = [resource for resource in resources if resource["ResourceStatus"].endswith("FAILED")]
        failure_texts = [
            f"{resource['LogicalResourceId']}: {resource.get('ResourceStatusReason', '')}"
            for resource in failed_resources
        ]
        file_system_ids = _ids_of(resources, FILE_SYSTEM_TYPE)
        tags = {tag["Key"]: tag["Value"] for tag in description.get("Tags", ())}
        return Stack(
            description["StackId"],
            description["StackStatus"],
            tags.get(SUBMISSION_TAG, ""),
            "; ".join(failure_texts) or description.get("StackStatusReason", ""),
            next(iter(file_system_ids), ""),
        )

    def create(self, name: str, parameters: Mapping[str, str], submission: str) -> str:
        with translated_errors(f"making the stack {name}"):
            response = self._clients.cloudformation().create_stack(
                StackName=name,
                TemplateBody=self._template,
                Capabilities=["CAPABILITY_IAM"],
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
                Tags=[{"Key": SUBMISSION_TAG, "Value": submission}],
                ClientRequestToken=submission,
            )
        return str(response["StackId"])

    def delete(self, name: str) -> None:
        with translated_errors(f"deleting the stack {name}"):
            self._clients.cloudformation().delete_stack(StackName=name)

    def end_machines(self, name: str) -> int:
        template_ids = _ids_of(self._resources(name), TEMPLATE_TYPE)
        self._end_groups([f"{name}-{group_suffix}" for group_suffix in GROUP_SUFFIXES])
        if not template_ids:
            return 0
        instance_filters = [
            {"Name": f"tag:{TEMPLATE_TAG}", "Values": template_ids},
            {"Name": "instance-state-name", "Values": list(LIVING_STATES)},
        ]
        ec2: Any = self._clients.ec2()
        with translated_errors(f"ending the machines of {name}"):
            pages = ec2.get_paginator("describe_instances").paginate(Filters=instance_filters)
            living_machines = [
                instance
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]
            if running_ids := [
                instance["InstanceId"] for instance in living_machines if instance["State"]["Name"] != "shutting-down"
            ]:
                ec2.terminate_instances(InstanceIds=running_ids)
        return len(living_machines)

    def _end_groups(self, names: Sequence[str]) -> None:
        """Delete Auto Scaling groups together with their instances. Auto Scaling groups whose instances have scale-in
        protection would block the deletion of the CloudFormation stack
        (https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DeleteAutoScalingGroup.html).
        """
        client = self._clients.autoscaling()
        with translated_errors(f"deleting the groups {', '.join(names)}"):
            for group in client.describe_auto_scaling_groups(AutoScalingGroupNames=list(names))["AutoScalingGroups"]:
                if "Status" not in group:  # the group is not yet being deleted
                    client.delete_auto_scaling_group(
                        AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True
                    )

    def _resources(self, name: str) -> list[dict[str, Any]]:
        with translated_errors(f"listing what the stack {name} has"):
            pages = self._clients.cloudformation().get_paginator("list_stack_resources").paginate(StackName=name)
            return [resource for page in pages for resource in page["StackResourceSummaries"]]


def _ids_of(resources: Sequence[Mapping[str, Any]], resource_type: str) -> list[str]:
    """The physical ids of a stack's existing resources of the type `resource_type`."""
    existing_resources = [
        resource
        for resource in resources
        if resource["ResourceType"] == resource_type and resource["ResourceStatus"] != "DELETE_COMPLETE"
    ]
    return [resource["PhysicalResourceId"] for resource in existing_resources if resource.get("PhysicalResourceId")]
