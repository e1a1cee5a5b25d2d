"""Whether what a script computes of a batch is what it computes of two parts of it, tried in processes of its own."""
