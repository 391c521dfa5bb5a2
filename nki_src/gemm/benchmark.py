"""For `kernels benchmark`: times the kernel on the machine it runs on and compares it with PyTorch."""

import torch
import torch.nn.functional as F
from kernels.benchmark import Benchmark


class GemmBenchmark(Benchmark):
    """The first product of a ViT-B MLP with its GELU, and a plain square product."""

    seed = 0

    def setup_vit_b_fc1(self):
        self.x = torch.randn(8, 197, 768, device=self.device, dtype=torch.bfloat16)
        self.weight = torch.randn(3072, 768, device=self.device, dtype=torch.bfloat16) / 768**0.5
        self.bias = torch.randn(3072, device=self.device, dtype=torch.bfloat16)
        self.out = torch.empty(8, 197, 3072, device=self.device, dtype=torch.bfloat16)

    def benchmark_vit_b_fc1(self):
        self.out = self.kernel.gemm(self.x, self.weight, self.bias, epilogue="gelu", transpose_weight=True)

    def verify_vit_b_fc1(self):
        return F.gelu(F.linear(self.x, self.weight, self.bias))

    def setup_square(self):
        self.x = torch.randn(2048, 2048, device=self.device, dtype=torch.bfloat16)
        self.weight = torch.randn(2048, 2048, device=self.device, dtype=torch.bfloat16) / 2048**0.5
        self.out = torch.empty(2048, 2048, device=self.device, dtype=torch.bfloat16)

    def benchmark_square(self):
        self.out = self.kernel.gemm(self.x, self.weight)

    def verify_square(self):
        return self.x @ self.weight
