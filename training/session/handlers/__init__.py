"""What is heard: of nodes, of workers that connect, of a generation's members, of commits. What comes too late changes
nothing.
"""
