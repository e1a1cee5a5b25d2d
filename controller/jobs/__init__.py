"""Jobs: one command of anybody's on N machines that end with it. What the resync needs of them is here and goes into
Lambda; how they are made is in `submission`, which does not.
"""
