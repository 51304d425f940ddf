"""`gemfi demo`: the main job, working, in two minutes and without a download."""

from __future__ import annotations

from gemfi_bench.demo.runner import PLANS, Plan, Run, run_demo

__all__ = ["PLANS", "Plan", "Run", "run_demo"]
