"""Functions that return facts about clusters, jobs and logs as data, for the commands and for the dashboard."""
