"""Report of a job as one page, made from the job's events or from the history in its reports."""
