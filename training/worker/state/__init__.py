"""The job's training state: its parts, its packed form, safe copies that outlive a worker, and commits (files)."""
