"""A training script as users of AWS Dynamic Training have them; written for its MXNet, whose Module takes a
`data_iterator`.
"""

import argparse
import logging

import mxnet as mx
from common import data, fit, network

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser(
        description="train cifar10", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    fit.add_fit_args(parser)
    data.add_data_args(parser)
    parser.set_defaults(
        network="resnet",
        num_layers=8,
        num_classes=10,
        num_examples=120,
        image_shape="3,32,32",
        batch_size=10,
        lr=0.05,
        lr_step_epochs="2,4",
    )
    args = parser.parse_args()
    logging.info("mxnet %s", mx.__version__)
    fit.fit(args, network.get_symbol(args.num_classes), data.get_rec_iter)
