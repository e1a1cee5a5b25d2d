"""The steps from a bare host to a retired node. Each step is a class in the list `bootstrap.STEPS`.

`dyntrain.node_bootstrap.core.plan` defines a step, and the plan of the steps that are left.
"""
