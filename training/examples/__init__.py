"""Example training scripts, as users of dyntrain write such scripts."""
