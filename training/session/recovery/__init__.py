"""What is not heard any more: workers, nodes and ps-lite groups that are lost, members that take too long, and a
coordinator that came back.
"""
