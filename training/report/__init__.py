"""Render the report of a job, from the job's events or status reports: as HTML, image, text or TensorBoard curves."""
