"""The state transfer from node to node at a membership change: in chunks, which receivers pass on.

The members without the state form chains behind the members that hold it
(`dyntrain.training.session.generation.chains`). Each member passes on its chunks while later chunks still arrive: with
links of equal speed, eight receivers take hardly longer than one. A member that loses its source continues, at the
chunk where it stopped, with the member before that source.
"""
