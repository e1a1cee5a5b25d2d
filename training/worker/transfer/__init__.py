"""The way of the state from node to node at a change of membership: in chunks, handed on by whoever has them.

The members that lack the state stand in chains behind those who hold it
(`dyntrain.training.session.generation.chains`), and each hands on what it has while the rest is still on its way to it:
with links of one speed, eight receivers take hardly longer than one. Who is cut off from the one before it goes on, at
the chunk where it stopped, with the one before that.
"""
