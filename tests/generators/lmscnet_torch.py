"""LMSCNet in PyTorch, written after the layer table of the paper (arXiv 2008.10559); parameter names as in the authors' code.

Shared by the golden files' generator and by the step time peer. Input: occupancy [B, Z, X, Y]; output: logits
[B, C, Z, X, Y] at full scale, of the multiscale network also at 1/2, 1/4, 1/8.
"""

import torch
from torch import nn
from torch.nn.functional import relu

HEAD_CHANNELS = 8
DILATIONS = (1, 2, 3)


def conv3x3(channels_in, channels_out):
    return nn.Conv2d(channels_in, channels_out, 3, padding=1)


def encoder_block(channels_in, channels_out, pool):
    layers = [conv3x3(channels_in, channels_out), nn.ReLU(), conv3x3(channels_out, channels_out), nn.ReLU()]
    return nn.Sequential(*([nn.MaxPool2d(2)] if pool else []), *layers)


class Head(nn.Module):
    def __init__(self, classes):
        super().__init__()

        def dilated():
            return nn.ModuleList(
                nn.Conv3d(HEAD_CHANNELS, HEAD_CHANNELS, 3, padding=d, dilation=d, bias=False) for d in DILATIONS
            )

        self.conv0 = nn.Conv3d(1, HEAD_CHANNELS, 3, padding=1)
        self.conv1 = dilated()
        self.bn1 = nn.ModuleList(nn.BatchNorm3d(HEAD_CHANNELS) for _ in DILATIONS)
        self.conv2 = dilated()
        self.bn2 = nn.ModuleList(nn.BatchNorm3d(HEAD_CHANNELS) for _ in DILATIONS)
        self.conv_classes = nn.Conv3d(HEAD_CHANNELS, classes, 3, padding=1)

    def forward(self, volume):
        x = relu(self.conv0(volume.unsqueeze(1)))
        branches = zip(self.conv1, self.bn1, self.conv2, self.bn2)
        return self.conv_classes(relu(x + sum(bn2(conv2(relu(bn1(conv1(x))))) for conv1, bn1, conv2, bn2 in branches)))


class LmscNet(nn.Module):
    def __init__(self, z, classes, multiscale):
        super().__init__()
        one, two, four, eight = z, z * 3 // 2, z * 2, z * 5 // 2
        self.Encoder_block1 = encoder_block(z, one, pool=False)
        self.Encoder_block2 = encoder_block(one, two, pool=True)
        self.Encoder_block3 = encoder_block(two, four, pool=True)
        self.Encoder_block4 = encoder_block(four, eight, pool=True)
        self.conv_out_scale_1_8 = conv3x3(eight, z // 8)
        self.deconv_1_8__1_2 = nn.ConvTranspose2d(z // 8, z // 8, 4, stride=4)
        self.deconv_1_8__1_1 = nn.ConvTranspose2d(z // 8, z // 8, 8, stride=8)
        self.deconv1_8 = nn.ConvTranspose2d(z // 8, z // 8, 6, stride=2, padding=2)
        self.conv1_4 = conv3x3(four + z // 8, four)
        self.conv_out_scale_1_4 = conv3x3(four, z // 4)
        self.deconv_1_4__1_1 = nn.ConvTranspose2d(z // 4, z // 4, 4, stride=4)
        self.deconv1_4 = nn.ConvTranspose2d(z // 4, z // 4, 6, stride=2, padding=2)
        self.conv1_2 = conv3x3(two + z // 4 + z // 8, two)
        self.conv_out_scale_1_2 = conv3x3(two, z // 2)
        self.deconv1_2 = nn.ConvTranspose2d(z // 2, z // 2, 6, stride=2, padding=2)
        self.conv1_1 = conv3x3(one + z // 2 + z // 4 + z // 8, one)
        self.seg_head_1_1 = Head(classes)
        if multiscale:
            self.seg_head_1_2, self.seg_head_1_4, self.seg_head_1_8 = Head(classes), Head(classes), Head(classes)
        self.multiscale = multiscale

    def forward(self, occupancy):
        skip_1 = self.Encoder_block1(occupancy)
        skip_2 = self.Encoder_block2(skip_1)
        skip_4 = self.Encoder_block3(skip_2)
        out_8 = self.conv_out_scale_1_8(self.Encoder_block4(skip_4))
        joined = torch.cat((self.deconv1_8(out_8), skip_4), 1)
        out_4 = self.conv_out_scale_1_4(relu(self.conv1_4(joined)))
        joined = torch.cat((self.deconv1_4(out_4), skip_2, self.deconv_1_8__1_2(out_8)), 1)
        out_2 = self.conv_out_scale_1_2(relu(self.conv1_2(joined)))
        joined = torch.cat((self.deconv1_2(out_2), skip_1, self.deconv_1_4__1_1(out_4), self.deconv_1_8__1_1(out_8)), 1)
        out_1 = relu(self.conv1_1(joined))
        logits = [self.seg_head_1_1(out_1)]
        if self.multiscale:
            logits += [self.seg_head_1_2(out_2), self.seg_head_1_4(out_4), self.seg_head_1_8(out_8)]
        return logits
