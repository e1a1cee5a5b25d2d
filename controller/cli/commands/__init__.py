"""The commands of `dyntrain`, with their options, questions and output. The functions of the commands import most
modules when a command runs, so that `--help` is fast.
"""
