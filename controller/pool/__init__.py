"""The loop that gives idle reserved instances to clusters. Each run reads AWS and the table, decides, and acts."""
