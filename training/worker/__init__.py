"""A worker's part in the job: membership, state, steps, samples.

**State** is one checksummed block: trained parameters and optimizer state first, then each worker's own. ps-lite's rank
decides nothing. Random generators are not in it: at each boundary they are seeded from (seed, step, worker's number).
**Commits** are named by generation and step; the coordinator journals the names. A damaged one is told, and the job
goes on from the one before at *its* position.

**The safe state** (`handover`, `safe_state`). Before a survivor says that it is prepared, its state is in memory that
its supervisor made and that each of its workers inherits: buffers in turn, filled once and used again. The worker that
commits packs the state there at each boundary too, also while an earlier commit is still being written. It is told in
the hello and not in the word prepared, so that a coordinator that died meanwhile knows it too.

**The pause of a change** is: check in, leave the old group while the state is copied, a round in which all say that
they are out and safe, ps-lite's create (with a fixed wait of 0.1 s inside it) and init (one barrier for all keys), a
round that compares digests, and a first step that allocates its buffers anew. All else is beside that: the state is
sent, taken over and digested while ps-lite forms; commits are written at a lower priority. Every `pause` event says how
long each part took.

**Shares** are a pure function of (seed, epoch, position, members): step s takes the next `global_batch` of the epoch's
permutation, a worker's share is a slice by the coordinator's number for it. Nothing is padded or dropped. The gradient
is the sum over the global batch divided by its size, so the number of workers does not change the mathematics.

**Statistics** of BatchNorm are averaged before each boundary, summed under a key behind the gradients' as a step of its
own, so that a loss in the middle is released like any other. They stay out of the digest.

**Release.** In `dist_sync` a server counts the requests for a key and does not ask who sent them, so a blocked
survivor's control thread can push the zeros that a dead worker owed (`session/generation/release.py` decides, `step`
does it). On Horovod nobody can do that, and need not: the control thread breaks the all-reduce off, and the training
thread finds its sums there or lost. Who lost them in a step that another has applied fetches that one's state.
"""
