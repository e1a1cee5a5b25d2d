"""Names, message models and errors that all folders share. Nodes and training import nothing else of `controller`."""
