"""Record files, one part for each worker."""

import mxnet as mx


def add_data_args(parser):
    group = parser.add_argument_group("Data")
    group.add_argument("--data-train", type=str)
    group.add_argument("--data-val", type=str)
    group.add_argument("--image-shape", type=str)
    group.add_argument("--num-classes", type=int)
    group.add_argument("--num-examples", type=int)
    group.add_argument("--rgb-mean", type=str, default="123.68,116.779,103.939")
    group.add_argument("--data-nthreads", type=int, default=1)


def get_rec_iter(args, kv=None):
    shape = tuple(int(length) for length in args.image_shape.split(","))
    mean = [float(value) for value in args.rgb_mean.split(",")]
    rank, workers = (kv.rank, kv.num_workers) if kv else (0, 1)
    common = {
        "data_shape": shape,
        "batch_size": args.batch_size,
        "mean_r": mean[0],
        "mean_g": mean[1],
        "mean_b": mean[2],
        "preprocess_threads": args.data_nthreads,
        "part_index": rank,
        "num_parts": workers,
    }
    train = mx.io.ImageRecordIter(path_imgrec=args.data_train, shuffle=True, rand_mirror=True, **common)
    if args.data_val is None:
        return train, None
    return train, mx.io.ImageRecordIter(path_imgrec=args.data_val, shuffle=False, **common)
