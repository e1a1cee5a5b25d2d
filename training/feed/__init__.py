"""Data in S3 for any program: each channel is a folder, or a FIFO per epoch, `<root>/<channel>_<epoch>`.

`run` is the parent of the program that reads, and holds the FIFOs. Feeder processes, one for each FIFO that is being
read, fetch ranges of objects, split the objects into
records and send the records to `run`, which writes them into the FIFO. A
dead feeder is replaced. The new feeder continues at the byte after the last written byte, so the reader sees only a
pause. If `run` itself dies, its program dies too, so no reader takes a broken stream for the end of an epoch.

The program never sees a false end of data: if an object cannot be read, the program is ended, and a message
names the object and the byte.

This package needs only Python 3.9, the standard library and boto3, and nothing else of dyntrain.
"""
