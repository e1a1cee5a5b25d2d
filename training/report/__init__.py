"""What a job was, for who looks at it afterwards: one page, made of its events or of the history in its reports."""
