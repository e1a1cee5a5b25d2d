"""The names, message models and errors that `controller`, `node_bootstrap` and `training` share. `node_bootstrap` and
`training` import no other part of `controller`.
"""
