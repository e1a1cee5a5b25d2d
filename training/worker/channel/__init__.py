"""Training data that is read from S3 during training, record by record.

Nothing is copied to the node first, so ten times the data hardly delays the first step (`make bench BENCH=channel`).

A channel is a set of RecordIO objects, each with the index that MXNet's im2rec writes. The index says how many records
an object contains and where each record begins, so a channel is a dataset with numbered records. The workers divide the
record numbers among each other, and divide them again when the membership changes. The job's ledger lists the record
numbers that were trained on.
"""
