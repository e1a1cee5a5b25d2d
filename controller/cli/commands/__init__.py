"""The commands of `dyntrain`, with options, confirmation questions and output. A command imports most modules only when
the command runs, so that `--help` is fast.
"""
