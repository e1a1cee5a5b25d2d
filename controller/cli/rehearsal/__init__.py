"""What the controller would make of recorded events, worked out in memory: nothing here touches AWS."""
