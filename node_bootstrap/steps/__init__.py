"""The steps of a node, from a new host to a retired node. Each step is a class in the list `bootstrap.STEPS`.

`dyntrain.node_bootstrap.core.plan` defines what a step is, and the plan, which lists the steps that are left.
"""
