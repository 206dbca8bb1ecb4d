"""SCPNet's completion block in PyTorch, written after the paper (arXiv 2303.06884) and the authors' layer list
(github.com/SCPNet/Codes-for-SCPNet); parameter names as in their code. `embed` and `conv_classes` stand for their PointNet
before it and their sparse U-Net after it. Tensors are concatenated, as there.

Input: features [B, channels, Z, X, Y]; output: logits [B, C, Z, X, Y].
"""

import torch
from torch import nn


def bare(channels_in, channels_out, kernel):
    return nn.Conv3d(channels_in, channels_out, kernel, padding=kernel // 2, bias=False)


def relu_after(channels_in, channels_out, kernel):
    return nn.Sequential(bare(channels_in, channels_out, kernel), nn.ReLU())


class ScpNet(nn.Module):
    def __init__(self, classes, channels=1, width=32):
        super().__init__()
        self.embed = bare(channels, width, 1)
        self.a_conv1 = relu_after(width, width, 3)
        self.a_conv2 = relu_after(width, width, 3)
        self.a_conv3 = relu_after(width, width, 5)
        self.a_conv4 = relu_after(width, width, 7)
        self.a_conv5 = relu_after(3 * width, width, 3)
        self.a_conv6 = relu_after(3 * width, width, 5)
        self.a_conv7 = relu_after(3 * width, width, 7)
        self.ch_conv1 = relu_after(7 * width, width, 1)
        self.res_1 = relu_after(width, width, 3)
        self.res_2 = relu_after(width, width, 5)
        self.res_3 = relu_after(width, width, 7)
        self.conv_classes = nn.Conv3d(width, classes, 1)

    def forward(self, features):
        x = torch.relu(self.embed(features))
        x1 = self.a_conv1(x)
        near = [layer(x1) for layer in (self.a_conv2, self.a_conv3, self.a_conv4)]
        joined = torch.cat(near, 1)
        far = [layer(joined) for layer in (self.a_conv5, self.a_conv6, self.a_conv7)]
        y0 = self.ch_conv1(torch.cat([x1, *near, *far], 1))
        return self.conv_classes(x + y0 + self.res_1(x) + self.res_2(x) + self.res_3(x))
