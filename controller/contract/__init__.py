"""What the folders share: names, wire models, errors. Of the controller, nodes and training may import this alone."""
