"""The batch that a script has in hand: which samples, in which parts, with which rows."""
