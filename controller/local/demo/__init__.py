"""The demo of `dyntrain local demo`: the demo's steps (story), display and report."""
