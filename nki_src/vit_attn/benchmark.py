"""For `kernels benchmark`: times the kernel on the machine it runs on and compares it with PyTorch."""

import torch
import torch.nn.functional as F
from kernels.benchmark import Benchmark


class VitAttnBenchmark(Benchmark):
    """Attention of ViT-B/16 at batch 8, and of ViT-L/14 at 336 pixels."""

    seed = 0

    def _setup(self, batch, heads, length, width):
        shape = (batch, length, heads, width)
        self.q, self.k, self.v = (
            torch.randn(shape, device=self.device, dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)
        )
        self.out = torch.empty_like(self.q)

    def setup_vit_b_16(self):
        self._setup(8, 12, 197, 64)

    def benchmark_vit_b_16(self):
        self.out = self.kernel.vit_attn(self.q, self.k, self.v)

    def verify_vit_b_16(self):
        return F.scaled_dot_product_attention(self.q, self.k, self.v)

    def setup_vit_l_14_336(self):
        self._setup(1, 16, 577, 64)

    def benchmark_vit_l_14_336(self):
        self.out = self.kernel.vit_attn(self.q, self.k, self.v)

    def verify_vit_l_14_336(self):
        return F.scaled_dot_product_attention(self.q, self.k, self.v)
