"""Launch jobs on AWS: upload a job's code and plan to S3, launch machines in EC2, and look up prices. Only the command
line uses this module, never a Lambda function.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import NO_CAPACITY_CODES, Clients, error_code, translated_errors
from dyntrain.controller.adapters.ec2 import NOT_FOUND_CODES
from dyntrain.controller.adapters.jobs import machine_of
from dyntrain.controller.contract.errors import ControllerError, GiveUp, Refused, RetryLater
from dyntrain.controller.contract.gpu_families import lacks_driver
from dyntrain.controller.contract.job_files import alive_key, run_id, run_prefix
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import NoCapacity, RootVolume
from dyntrain.controller.jobs.verdict import Machine

# https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
IMAGE_PARAMETER = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
# The cluster's template uses the same image: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
GPU_IMAGE_PARAMETER = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}  # Ubuntu's names of EC2's architectures
PRICES_REGION = "us-east-1"  # a region that has the Pricing API, which knows the prices of all regions
NO_BUCKET_CODES = ("301", "403", "404")  # error codes of HeadBucket are HTTP status codes
DEFAULTS_PATH = "/dyntrain/-jobs-/"  # parameters that the stack of `dyntrain job template` creates


def stack_defaults(clients: Clients) -> dict[str, str]:
    """Read a job's default bucket, profile and security-group, which the stack of `dyntrain job template` stores in
    SSM. The result is empty if the stack of `dyntrain job template` does not exist.
    """
    with translated_errors(f"reading the parameters under {DEFAULTS_PATH}"):
        parameters = clients.ssm().get_parameters_by_path(Path=DEFAULTS_PATH)["Parameters"]
    return {entry["Name"].removeprefix(DEFAULTS_PATH): entry["Value"] for entry in parameters}


class AwsLauncher:
    def __init__(self, clients: Clients) -> None:
        self.clients = self._clients = clients
        self.region: str = clients.ec2().meta.region_name

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def image_for(self, instance_type: str) -> str:
        with translated_errors(f"looking up {instance_type}"):
            description = self._ec2().describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"][0]
            if driver_problem := lacks_driver(instance_type):
                raise GiveUp(
                    f"no image was chosen: {driver_problem}; or name an image with a driver for these GPUs by --image"
                )
            architectures = description.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
            known_architectures = [name for name in architectures if name in ARCHITECTURES] or ["x86_64"]
            gpu_makers = [gpu.get("Manufacturer", "") for gpu in description.get("GpuInfo", {}).get("Gpus", ())]
            parameter_name = (
                GPU_IMAGE_PARAMETER.format(known_architectures[0])
                if "NVIDIA" in gpu_makers
                else IMAGE_PARAMETER.format(ARCHITECTURES[known_architectures[0]])
            )
            return str(self._clients.ssm().get_parameter(Name=parameter_name)["Parameter"]["Value"])

    def root_volume_of(self, image: str) -> RootVolume | None:
        with translated_errors(f"looking at the image {image}"):
            description = self._ec2().describe_images(ImageIds=[image])["Images"][0]
        root_device = description.get("RootDeviceName", "")
        volume_sizes = {
            mapping.get("DeviceName"): mapping.get("Ebs", {}).get("VolumeSize")
            for mapping in description["BlockDeviceMappings"]
        }
        return RootVolume(root_device, int(volume_sizes[root_device])) if volume_sizes.get(root_device) else None

    def check_bucket(self, bucket: str) -> None:
        with translated_errors(f"looking at the bucket {bucket}"):
            try:
                self._clients.s3().head_bucket(Bucket=bucket)
            except ClientError as error:
                if error_code(error) not in NO_BUCKET_CODES:
                    raise
                error_messages = {
                    "301": f"the bucket {bucket} is in another region than the machines would be ({self.region})",
                    "403": f"the bucket {bucket} may not be used with these credentials",
                    "404": f"there is no bucket {bucket}; `dyntrain job template` has one",
                }
                raise Refused(error_code(error), error_messages[error_code(error)]) from error

    def check_launch(self, fields: Mapping[str, Any]) -> None:
        with translated_errors("asking EC2 whether it would launch these machines"):
            try:
                self._clients.ec2().run_instances(**{**fields, "DryRun": True})
            except ClientError as error:
                if error_code(error) != "DryRunOperation":
                    raise

    def launch(self, fields: Mapping[str, Any]) -> Sequence[Machine]:
        with translated_errors(f"launching {fields['MaxCount']} machines of type {fields['InstanceType']}"):
            try:
                response = self._clients.ec2().run_instances(**fields)
            except ClientError as error:
                if error_code(error) in NO_CAPACITY_CODES:
                    message = str(error.response.get("Error", {}).get("Message", ""))
                    raise NoCapacity(
                        error_code(error),
                        f"not all {fields['MaxCount']} machines are available, so none was launched: {message}",
                    ) from error
                raise
        return [machine_of(instance) for instance in response["Instances"]]

    def tag(self, instances: Sequence[str], tags: Mapping[str, str]) -> None:
        with translated_errors(f"tagging {len(instances)} instances"):
            try:
                self._clients.ec2().create_tags(
                    Resources=list(instances), Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
                )
            except ClientError as error:
                if error_code(error) in NOT_FOUND_CODES:
                    raise RetryLater(
                        f"tagging failed, because EC2 does not show the launched machines yet: {error}"
                    ) from error
                raise

    def put(self, bucket: str, key: str, content: bytes) -> None:
        with translated_errors(f"writing s3://{bucket}/{key}"):
            self._clients.s3().put_object(Bucket=bucket, Key=key, Body=content)

    def get(self, bucket: str, key: str) -> bytes | None:
        with translated_errors(f"reading s3://{bucket}/{key}"):
            try:
                return bytes(self._clients.s3().get_object(Bucket=bucket, Key=key)["Body"].read())
            except ClientError as error:
                if error_code(error) == "NoSuchKey":
                    return None
                raise

    def size(self, bucket: str, key: str) -> int:  # in bytes
        with translated_errors(f"looking at s3://{bucket}/{key}"):
            return int(self._clients.s3().head_object(Bucket=bucket, Key=key)["ContentLength"])

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> None:
        with translated_errors(f"copying s3://{source[0]}/{source[1]}"):
            self._clients.s3().copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": source[0], "Key": source[1]})

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        with translated_errors(f"deleting what was put into s3://{bucket}"):
            for key in keys:
                self._clients.s3().delete_object(Bucket=bucket, Key=key)

    def alive_count(self, record: JobRecord) -> int:  # number of nodes that gave a sign of life
        alive_keys = {alive_key(record.name, record.run, rank) for rank in range(record.nodes)}
        return len(alive_keys & {entry["Key"] for entry in self._run_objects(record, record.run)})

    def write_times(self, record: JobRecord, attempt: int) -> dict[str, float]:
        """The time of the last write of each S3 object of one attempt of the job, by the object's key."""
        objects = self._run_objects(record, run_id(record.submission, attempt))
        return {object_entry["Key"]: object_entry["LastModified"].timestamp() for object_entry in objects}

    def _run_objects(self, record: JobRecord, run: str) -> list[dict[str, Any]]:
        with translated_errors(f"looking at s3://{record.bucket}/{record.name}/"):
            object_pages = (
                self._clients.s3()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=record.bucket, Prefix=run_prefix(record.name, run))
            )
            return [entry for page in object_pages for entry in page.get("Contents", [])]

    def price(self, instance_type: str, *, spot: bool) -> float | None:
        try:
            return self._spot_price(instance_type) if spot else self._listed_price(instance_type)
        except (ControllerError, KeyError, ValueError, IndexError, StopIteration):
            return None  # without rights, without an entry, or in an unknown format, the price is unknown

    def price_in(self, instance_type: str, market: str) -> float | None:
        """The hourly price, in dollars, of an instance in the market `market`. An instance in a capacity reservation
        costs the on-demand price. Returns None for Capacity Blocks, which are paid in advance.
        """
        return None if market == "capacity-block" else self.price(instance_type, spot=market == "spot")

    def _ec2(self) -> Any:
        """The EC2 client, typed as Any because the type stubs do not list every instance type that a user may name."""
        return self._clients.ec2()

    def _spot_price(self, instance_type: str) -> float:
        with translated_errors(f"asking for the Spot price of {instance_type}"):
            response = self._ec2().describe_spot_price_history(
                InstanceTypes=[instance_type],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=datetime.now(UTC),  # returns the present price of each zone
            )
        return max(float(entry["SpotPrice"]) for entry in response["SpotPriceHistory"])

    def _listed_price(self, instance_type: str) -> float:
        price_filters = {
            "instanceType": instance_type,
            "regionCode": self.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        pricing_client = self._clients.pricing(PRICES_REGION)
        with translated_errors(f"asking for the price of {instance_type}"):
            response = pricing_client.get_products(
                ServiceCode="AmazonEC2",
                Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in price_filters.items()],
            )
        return listed_price(json.loads(response["PriceList"][0]))


def listed_price(product: Mapping[str, Any]) -> float:
    """The hourly on-demand price in dollars, taken from an entry of AWS's price list."""
    on_demand_term = next(iter(product["terms"]["OnDemand"].values()))
    return float(next(iter(on_demand_term["priceDimensions"].values()))["pricePerUnit"]["USD"])
