"""A rank of a training on a machine with one GPU: `python gpu_rank.py JOB RENDEZVOUS BACKEND`, a URL.

NCCL refuses two ranks on one device. `gloo` lets them share it: their tensors lie on the GPU as with NCCL, and what
carries them is another. `nccl` is what a training has, here for one rank.
"""

import sys
from typing import Any

import torch
from torch import distributed

from trainworthy.lifecycle.worker import main

if __name__ == "__main__":
    job, rendezvous, backend = sys.argv[1:]
    if backend == "gloo":
        start = distributed.init_process_group

        def by_gloo(backend: str, **settings: Any) -> None:
            assert backend == "cpu:gloo,cuda:nccl"
            start("gloo", **settings)

        distributed.init_process_group = by_gloo
        torch.cuda.set_device = lambda device: None
    sys.exit(main(["--job", job, "--rendezvous", rendezvous]))
