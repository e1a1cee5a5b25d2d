"""A job runs one command on N machines, which end when the command ends. The periodic resync runs this code in a Lambda
function.

The package `submission`, which creates jobs, runs on people's own machines and is not deployed to Lambda.
"""
