"""The embedded cloud: an emulation of AWS on one machine, for demos and tests. It is never deployed to AWS."""
