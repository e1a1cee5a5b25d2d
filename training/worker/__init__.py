"""A worker's side of an elastic job: its membership, training state, steps and samples.

**State** is one block with a checksum: first the arrays that are equal on all workers (trained parameters and optimizer
state), then each worker's own arrays. The rank that ps-lite gives a worker is not used. The state does not contain
random generators, which are seeded after each epoch and segment from (seed, step, worker's number). **Commits** are
files with the state, named by generation and step. The coordinator writes the names of the commits to its journal. If a
worker reports a damaged commit, the job continues from the previous commit.

**The safe state** (`handover`, `safe_state`). Before a survivor reports that it is prepared, it copies its state into
memory that its supervisor allocated. A worker process that is started later inherits the supervisor's memory. The
worker that writes commits also packs the state into its supervisor's memory after each epoch and segment, even while an
earlier commit is still being written. Workers announce their safe state in the message `WorkerHello`, so that a
restarted coordinator also knows of the safe state.

**The pause** of training at a membership change has several parts. The workers check in, and leave the old group while
the state is copied. All workers report that they have left the group and that their state is safe. ps-lite creates the
new group (with a fixed wait of 0.1 s) and initialises the keys (one barrier). The workers compare digests of the state.
The first step in the new group allocates its buffers again. The state is sent, installed and digested while ps-lite
forms the group, and commits are written at a lower priority. Every `pause` event contains the duration of each part.

**Shares** of samples depend only on seed, epoch, position and the workers' number. A step takes the next `global_batch`
samples of the epoch's permutation, and a worker's share is a slice of these samples, chosen by the number that the
coordinator gave the worker. No batch is padded and no sample is dropped. The gradient is the sum over the global batch
divided by the batch's size, so the result does not depend on the number of workers.

**Statistics** of BatchNorm are averaged at the end of each epoch and segment. The statistics are summed in an exchange
of their own, under a key after the gradients' keys. If a worker is lost in the exchange of statistics, the survivors
are released as in any step. The digest by which the workers compare their states does not cover the statistics.

**Release.** A server of ps-lite counts the requests for a key, no matter which worker sent them. So when a worker dies,
the control thread of a blocked survivor can push zeros in place of the dead worker (`session/generation/release.py`
decides, `membership/step.py` pushes). With Horovod, the control thread aborts the all-reduce, and the training thread
then either has all sums or reports that sums were lost. If a worker lost the sums of a step that another worker
applied, it fetches the other worker's state.
"""
