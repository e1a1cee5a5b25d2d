"""What is typed: the options of each command, what it asks for and what it prints. A module of these is imported when
its command is given, and imports what it needs when it runs, so that `--help` costs little.
"""
