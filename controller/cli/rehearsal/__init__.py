"""Replay recorded events through the controller in memory; nothing here touches AWS."""
