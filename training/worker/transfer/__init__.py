"""The transfer of the training state from node to node at a membership change, in chunks that receivers pass on.

The members without the state form chains behind the members that have the state
(`dyntrain.training.session.generation.chains`). Each member of a chain passes on chunks while later chunks still
arrive, so the transfer to eight members takes hardly longer than to one member. If a member's source dies, the member
fetches the remaining chunks from the member before the source.
"""
