"""Report of a job for later readers: one page, made from its events or from the history in its reports."""
