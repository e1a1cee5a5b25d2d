"""Jobs: one command on N machines that end with it. What the resync needs of them is here and goes into Lambda;
creating them is in `submission`, which does not.
"""
