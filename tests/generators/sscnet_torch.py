"""SSCNet-full in PyTorch, written after the paper (arXiv 1611.08974) and the layer list of LMSCNet's authors; parameter
names as in their code.

Input: features [B, channels, Z, X, Y]; output: logits [B, C, Z, X, Y].
"""

import torch
from torch import nn
from torch.nn.functional import relu


def conv(channels_in, channels_out, kernel=3, dilation=1, stride=1):
    padding = kernel // 2 * dilation
    return nn.Conv3d(channels_in, channels_out, kernel, stride=stride, padding=padding, dilation=dilation)


class SscNet(nn.Module):
    def __init__(self, classes, channels=1):
        super().__init__()
        self.conv1_1 = conv(channels, 16, kernel=7, stride=2)
        self.reduction2_1 = conv(16, 32, kernel=1)
        self.conv2_1, self.conv2_2 = conv(16, 32), conv(32, 32)
        self.reduction3_1 = conv(64, 64, kernel=1)
        self.conv3_1, self.conv3_2 = conv(32, 64), conv(64, 64)
        self.conv3_3, self.conv3_4 = conv(64, 64), conv(64, 64)
        self.conv3_5, self.conv3_6 = conv(64, 64, dilation=2), conv(64, 64, dilation=2)
        self.conv3_7, self.conv3_8 = conv(64, 64, dilation=2), conv(64, 64, dilation=2)
        self.conv4_1, self.conv4_2 = conv(192, 128, kernel=1), conv(128, 128, kernel=1)
        self.deconv_classes = nn.ConvTranspose3d(128, classes, 4, stride=4)

    def forward(self, features):
        x = relu(self.conv1_1(features))
        x = relu(self.reduction2_1(x) + self.conv2_2(relu(self.conv2_1(x))))
        x = relu(self.conv3_1(nn.functional.max_pool3d(x, 2)))
        x = relu(self.reduction3_1(x) + self.conv3_2(x))
        levels = []
        for first, second in ((self.conv3_3, self.conv3_4), (self.conv3_5, self.conv3_6), (self.conv3_7, self.conv3_8)):
            x = first(x)
            x = relu(x + second(relu(x)))
            levels.insert(0, x)
        x = relu(self.conv4_2(relu(self.conv4_1(torch.cat(levels, 1)))))
        return self.deconv_classes(x)
