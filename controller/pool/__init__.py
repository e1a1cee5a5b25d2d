"""The loop that gives idle reserved instances to clusters. Each run of the loop reads AWS and the DynamoDB table,
decides, and carries out the decisions.
"""
