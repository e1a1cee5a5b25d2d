"""Downloads CIFAR-10 for `train_cifar10.py`, by the module `prepare_cifar10`.

Copy this file to the cluster's volume.
"""

import sys

from dyntrain.training.examples.prepare_cifar10 import main

sys.exit(main())
