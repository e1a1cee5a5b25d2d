"""The steps from a bare host to a node that its job has retired: one class each, all of them in the list
`bootstrap.STEPS`. What a step is, and what is left to do, is in `dyntrain.node_bootstrap.core.plan`.
"""
