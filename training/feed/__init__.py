"""Data in S3 for any program: each channel is a FIFO an epoch, `<root>/<channel>_<epoch>`, or a folder.

`run` is the parent of the program that reads, and holds the FIFOs. Feeder processes, one for each FIFO that is being
read, fetch ranges of objects, split them into records and send these to `run`, which writes them into the FIFO. A
feeder that dies is replaced; the new one continues at the byte after the last one written, so the reader sees only a
pause. If `run` itself dies, its program dies with it, so no reader takes a broken stream for the end of an epoch.

The program never sees a false end of data: if an object cannot be read, the program is ended, with a message that
names the object and the byte.

Runs on bare machines: Python 3.9, the standard library and boto3, nothing else of dyntrain.
"""
