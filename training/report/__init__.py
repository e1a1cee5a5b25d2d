"""Report of a job: an HTML page, an image, text and TensorBoard curves, made from its events or its reports."""
