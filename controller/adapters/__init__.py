"""One module an AWS service; the only places that import botocore."""
