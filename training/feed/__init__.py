"""Delivers data in S3 to any program: each channel is a folder, or one FIFO `<root>/<channel>_<epoch>` for each epoch.

`run` is the parent of the program that reads the data, and holds the FIFOs. Each FIFO that is being read has a feeder
process, which fetches objects from S3, splits the objects into records and sends the records to `run`. `run` writes a
feeder's records into the feeder's FIFO. A feeder that dies is replaced by a new feeder, which continues at the byte
after the last written byte, so the reader sees only a pause. If `run` itself dies, its program dies too, so the program
never takes an interrupted stream for the end of an epoch.

If an object cannot be read, the program is ended before it sees an end of data, and a message names the object and the
byte.

This package needs only Python 3.9, the standard library and boto3, and imports no other package of dyntrain.
"""
