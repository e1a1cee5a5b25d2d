"""The commands: the options of each, its questions and its output. A command's module is imported when it is used, and
imports what it needs when it runs, so that `--help` is fast.
"""
