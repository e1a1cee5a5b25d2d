"""From one phase to the next: when a generation starts, changes, is given up or ends, and by which orders."""
