"""One file a command of `trainworthy`: add(commands) declares its arguments, the work is imported when it runs."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
