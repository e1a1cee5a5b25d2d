"""Jobs: one command on N machines, which end with the command. The resync runs this code in Lambda.

`submission` creates jobs on people's machines, and is not deployed.
"""
