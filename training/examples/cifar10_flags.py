"""Parses the flags of `train_cifar10.py`: those flags of MXNet's own `train_cifar10.py` that affect the training."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dyntrain.training.examples.cifar10_data import TRAINING, VALIDATION, default_directory


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line.

    The results `gpus` and `lr_step_epochs` are lists of numbers. Raises SystemExit(2) for wrong flags.
    """
    parser = argparse.ArgumentParser(prog="train_cifar10.py", description="Train a ResNet on CIFAR-10 with Module.")
    _add_model_flags(parser)
    _add_data_flags(parser)
    _add_training_flags(parser)
    args = parser.parse_args(argv)
    if args.load_epoch is not None and not args.model_prefix:
        parser.error("--load-epoch needs the --model-prefix under which that epoch was saved")
    if args.num_layers < 8 or (args.num_layers - 2) % 6:
        parser.error(f"--num-layers {args.num_layers}: must be 6n + 2, as are 20, 50 and 110")
    return args


def _int_list(text: str) -> list[int]:
    return sorted(int(number) for number in text.split(",") if number)


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", choices=["resnet"], default="resnet")
    parser.add_argument("--num-layers", type=int, default=110, help="6n + 2")
    parser.add_argument(
        "--model-prefix", help="save the parameters of each epoch under this name, on the shared volume"
    )
    parser.add_argument("--save-period", type=int, default=1, help="save the parameters every so many epochs")
    parser.add_argument("--load-epoch", type=int, help="continue after this saved epoch")


def _add_data_flags(parser: argparse.ArgumentParser) -> None:
    directory = default_directory(os.environ)
    parser.add_argument("--data-train", type=Path, default=directory / TRAINING, help="RecordIO; default: %(default)s")
    parser.add_argument("--data-val", type=Path, default=directory / VALIDATION, help="default: %(default)s")
    parser.add_argument("--num-examples", type=int, default=50000, help="images in the training data")
    parser.add_argument("--pad-size", type=int, default=4, help="training images are cropped after so much padding")
    parser.add_argument("--data-nthreads", type=int, default=4, help="threads that decode images")


def _add_training_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-store", default="device", help="dist_sync, dist_device_sync and dist_sync_device are elastic"
    )
    # `seq` prints nothing if there are no GPUs.
    parser.add_argument("--gpus", type=_int_list, nargs="?", const=[], default=[], help="as in 0,1; default: the CPU")
    parser.add_argument("--num-epochs", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=128, help="samples in a step of one worker")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument(
        "--lr-factor", type=float, default=0.1, help="factor of the rate at each epoch of --lr-step-epochs"
    )
    parser.add_argument("--lr-step-epochs", type=_int_list, default=[200, 250], help="as in 200,250")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--mom", type=float, default=0.9, help="momentum of sgd, nag and signum")
    parser.add_argument("--wd", type=float, default=1e-4)
    parser.add_argument("--top-k", type=int, default=0, help="also report the top-k accuracy for this k")
    parser.add_argument("--disp-batches", type=int, default=20, help="batches between two lines of progress")
    parser.add_argument("--monitor", type=int, default=0, help="batches between two reports on the arrays; 0: none")
    parser.add_argument(
        "--gc-type", choices=["none", "2bit"], default="none", help="elastic training accepts only none"
    )
    parser.add_argument("--gc-threshold", type=float, default=0.5)
