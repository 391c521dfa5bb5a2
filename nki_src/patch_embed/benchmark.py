"""For `kernels benchmark`: times the kernel on the machine it runs on and compares it with PyTorch."""

import torch
import torch.nn.functional as F
from kernels.benchmark import Benchmark


class PatchEmbedBenchmark(Benchmark):
    """Eight images of ViT-B/16."""

    seed = 0

    def setup_vit_b16(self):
        """Draw eight images and the embedding's parameters."""
        self.image = self._draw(8, 3, 224, 224)
        self.weight = self._draw(768, 3, 16, 16)
        self.bias = self._draw(768)
        self.class_token = self._draw(1, 1, 768)
        self.position = self._draw(1, 197, 768)
        self.out = self._draw(8, 197, 768)

    def benchmark_vit_b16(self):
        """Run the kernel."""
        self.out = self.kernel.patch_embed(self.image, self.weight, self.bias, self.class_token, self.position)

    def verify_vit_b16(self):
        """The same by PyTorch."""
        patches = F.conv2d(self.image, self.weight, self.bias, stride=16).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(8, 1, 768), patches], dim=1) + self.position

    def _draw(self, *shape):
        return torch.randn(shape, device=self.device, dtype=torch.bfloat16)
