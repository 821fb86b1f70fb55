"""Tensors in tests are tiny and workers share the cores: a second thread only waits."""

import torch

torch.set_num_threads(1)
