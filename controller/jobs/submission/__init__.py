"""Submitting a job: request, checks, packing, launch. Runs on people's machines; none of it goes into Lambda."""
