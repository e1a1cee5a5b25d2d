"""Training of one MXNet job, whose workers can join and leave while the job runs."""
