"""A worker's side of an elastic job: membership, state, steps, samples.

**State** is one checksummed block: trained parameters and optimizer state, which all workers share, then each worker's
own arrays. The rank in ps-lite decides nothing. The block does not contain random generators: at each boundary they are
seeded from (seed, step, worker's number). **Commits** are named by generation and step; the coordinator journals the
names. A worker reports a damaged commit, and the job continues from the previous commit, at the position of that
commit.

**The safe state** (`handover`, `safe_state`). Before a survivor reports that it is prepared, its state is in memory
that its supervisor allocated and that each of its workers inherits: buffers used in turn, and reused. The worker that
commits also packs the state into this memory at each boundary, even while an earlier commit is still being written.
Workers announce the safe state in the hello, not in `Prepared`, so that a restarted coordinator also knows of the
state.

**The pause of a change** has these parts. The workers check in, and leave the old group while the state is copied. All
workers report that they have left and that their state is safe. ps-lite creates the new group (with a fixed wait of 0.1
s) and initialises the keys (one barrier). The workers compare digests of the state. Their first step allocates its
buffers again. All other work runs in parallel: the state is sent, installed and digested while ps-lite forms the group,
and commits are written at a lower priority. Every `pause` event contains the duration of each part.

**Shares** are a pure function of (seed, epoch, position, members): step s takes the next `global_batch` of the epoch's
permutation, and a worker's share is a slice chosen by the coordinator's number for it. No batch is padded and no sample
is dropped. The gradient is the sum over the global batch divided by its size, so the number of workers does not change
the mathematics.

**Statistics** of BatchNorm are averaged before each boundary. The statistics are summed under a key after the
gradients' keys, in a step of their own: if a worker is lost in this step, the survivors are released as in any step.
The digest of the state does not cover the statistics.

**Release.** In `dist_sync` a server counts the requests for a key without regard to their senders. So a blocked
survivor's control thread can push the zeros that a dead worker owed (`session/generation/release.py` decides, `step`
pushes). On Horovod, the control thread aborts the all-reduce instead, and the training thread then either has all sums
or reports that sums were lost. A worker that lost the sums of a step that another worker applied fetches that worker's
state.
"""
