"""Rules for training scripts with stable codes, the findings of broken rules, and a page for each rule."""
