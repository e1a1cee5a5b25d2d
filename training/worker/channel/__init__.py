"""Training data that is read from S3 during training, record by record.

Nothing is copied to the node first, so with ten times the data the first step comes hardly later
(`make bench BENCH=channel`).

A channel is a set of RecordIO objects, each with the index that MXNet's im2rec writes. The index says how many records
there are and where each begins, so a channel is a dataset like any other: its records are numbered, the workers divide
these numbers, the ledger lists them, and they are divided again when the membership changes.
"""
