"""One generation, computed without the job: its members, what it starts from, its ps-lite group, who asks whom for the
state, how its survivors free themselves.
"""
