"""For `kernels benchmark`: times the kernel on the machine it runs on and compares it with PyTorch."""

import torch
import torch.nn.functional as F
from kernels.benchmark import Benchmark


class LayerNormBenchmark(Benchmark):
    """LayerNorm of a batch of eight ViT-B/16 images, and of 4096 wider rows."""

    seed = 0

    def setup_vit_b16(self):
        """Draw eight images of 197 tokens."""
        self._draw(8 * 197, 768)

    def benchmark_vit_b16(self):
        """Run the kernel."""
        self._run()

    def verify_vit_b16(self):
        """The same by PyTorch."""
        return self._expected()

    def setup_wide(self):
        """Draw 4096 rows of 4096."""
        self._draw(4096, 4096)

    def benchmark_wide(self):
        """Run the kernel."""
        self._run()

    def verify_wide(self):
        """The same by PyTorch."""
        return self._expected()

    def _draw(self, rows, width):
        self.x = torch.randn(rows, width, device=self.device, dtype=torch.bfloat16)
        self.weight = torch.randn(width, device=self.device, dtype=torch.bfloat16)
        self.bias = torch.randn(width, device=self.device, dtype=torch.bfloat16)
        self.out = torch.empty_like(self.x)

    def _run(self):
        self.out = self.kernel.layernorm(self.x, self.weight, self.bias, 1e-12)

    def _expected(self):
        return F.layer_norm(self.x, self.x.shape[-1:], self.weight, self.bias, 1e-12)
