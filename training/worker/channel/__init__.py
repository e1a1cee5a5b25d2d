"""Training data that is read from S3 while it trains, record by record: nothing is copied to the node first, so the
first step comes hardly later with ten times the data (`make bench BENCH=channel`).

A channel is a set of RecordIO objects with the index that MXNet's im2rec writes beside each. The index says how many
records there are and where each begins; so a channel is a dataset like any other: records are dealt by their numbers,
named in the ledger and dealt anew when the membership changes.
"""
