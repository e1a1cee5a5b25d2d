"""`python -m dyntrain`: the command `dyntrain`."""

from dyntrain.controller.cli.main import main

main(prog_name="dyntrain")
