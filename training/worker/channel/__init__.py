"""Reads training data from S3 during training, record by record.

No data is copied to the node before training, so the first step starts hardly later with ten times the data (`make
bench BENCH=channel`).

A channel is a set of RecordIO objects, each with the index that MXNet's im2rec writes. An index says how many records
its object contains and where each record begins, so a channel is a dataset with numbered records. The workers divide
the record numbers among each other, and divide the remaining numbers anew when workers join or leave. The job's ledger
lists the numbers of the records that were trained on.
"""
