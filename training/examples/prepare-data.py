"""Prepares CIFAR-10 for `train_cifar10.py` (`dyntrain.training.examples.prepare_cifar10`): copy it to the volume."""

import sys

from dyntrain.training.examples.prepare_cifar10 import main

sys.exit(main())
