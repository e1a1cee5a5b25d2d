"""A small convolutional network with BatchNorm."""

import mxnet as mx


def get_symbol(num_classes):
    net = mx.sym.Variable("data")
    net = mx.sym.Convolution(net, num_filter=4, kernel=(3, 3), stride=(2, 2), name="conv0")
    net = mx.sym.BatchNorm(net, fix_gamma=False, momentum=0.9, name="bn0")
    net = mx.sym.Pooling(mx.sym.Activation(net, act_type="relu"), global_pool=True, kernel=(1, 1), pool_type="avg")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=num_classes, name="fc1")
    return mx.sym.SoftmaxOutput(net, name="softmax")
