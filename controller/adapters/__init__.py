"""One module per AWS service; the only places that import botocore."""
