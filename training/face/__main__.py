"""Runs the command `dyntrain` for `python -m dyntrain`."""

from dyntrain.controller.cli.main import main

main(prog_name="dyntrain")
