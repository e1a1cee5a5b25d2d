"""Data in S3 for any program: each channel is a FIFO an epoch, `<root>/<channel>_<epoch>`, or a folder.

`run` is the parent of the program that reads. It holds the FIFOs; what it writes there comes from feeder processes, one
for each FIFO that is being read, which fetch ranges of objects and split them into records. A feeder that dies is made
anew and goes on at the byte after the last that was written: the reader notices a pause. When `run` itself dies, its
program dies with it, so no reader takes a broken stream for the end of an epoch.

A program is never given an end of data that is none: what cannot be read ends the program, with a sentence that says
which object, and at which byte.

It runs on machines as they come: Python 3.9, the standard library and boto3, nothing else of dyntrain.
"""
