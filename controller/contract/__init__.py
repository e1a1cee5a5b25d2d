"""What the folders share: names, wire models, errors. Nodes and training import nothing else of the controller."""
