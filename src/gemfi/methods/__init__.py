"""Every method, one system a file. `METHODS` maps a name to its head; to add one, list it here."""

from __future__ import annotations

from gemfi.errors import InputError
from gemfi.methods.base import Batch, DataFacts, Head, MethodInfo, Progress
from gemfi.methods.daedl import DAEDL, DAEDLConfig
from gemfi.methods.edl import (
    EDL,
    IEDL,
    REDL,
    CEDLPlus,
    CEDLPlusConfig,
    EDLConfig,
    IEDLConfig,
    REDLConfig,
    ReEDL,
    ReEDLConfig,
)
from gemfi.methods.gem import GEM, GEMConfig
from gemfi.methods.gem_paper import PAPER_PRESETS, GEMPaper, PaperConfig
from gemfi.methods.gem_presets import GEMFI, PRESETS, GEMCore, GEMMix
from gemfi.methods.keep import Keep, KeepConfig
from gemfi.methods.postnet import PostNet, PostNetConfig
from gemfi.methods.prior_networks import (
    ForwardPriorNetwork,
    ForwardPriorNetworkConfig,
    PriorNetworkConfig,
    ReversePriorNetwork,
)
from gemfi.methods.softmax import (
    Ensemble,
    EnsembleConfig,
    LogitNorm,
    MCDropout,
    MCDropoutConfig,
    NormConfig,
    Softmax,
    SoftmaxConfig,
    T2FNorm,
    monte_carlo,
)

METHODS: dict[str, type[Head]] = {
    head.info.name: head
    for head in (
        Softmax,
        LogitNorm,
        T2FNorm,
        MCDropout,
        Ensemble,
        EDL,
        IEDL,
        REDL,
        ReEDL,
        DAEDL,
        PostNet,
        ForwardPriorNetwork,
        ReversePriorNetwork,
        CEDLPlus,
        GEMCore,
        GEMMix,
        GEMFI,
        GEMPaper,
    )
}
"""Every method that is trained."""


def method(name: str) -> type[Head]:
    """The head of a name, or an error that lists the names; `keep` is for `attach` alone."""
    if name == Keep.info.name:
        return Keep
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    return METHODS[name]


__all__ = [
    "DAEDL",
    "EDL",
    "GEM",
    "GEMFI",
    "IEDL",
    "METHODS",
    "PAPER_PRESETS",
    "PRESETS",
    "REDL",
    "Batch",
    "CEDLPlus",
    "CEDLPlusConfig",
    "DAEDLConfig",
    "DataFacts",
    "EDLConfig",
    "Ensemble",
    "EnsembleConfig",
    "ForwardPriorNetwork",
    "ForwardPriorNetworkConfig",
    "GEMConfig",
    "GEMCore",
    "GEMMix",
    "GEMPaper",
    "Head",
    "IEDLConfig",
    "Keep",
    "KeepConfig",
    "LogitNorm",
    "MCDropout",
    "MCDropoutConfig",
    "MethodInfo",
    "NormConfig",
    "PaperConfig",
    "PostNet",
    "PostNetConfig",
    "PriorNetworkConfig",
    "Progress",
    "REDLConfig",
    "ReEDL",
    "ReEDLConfig",
    "ReversePriorNetwork",
    "Softmax",
    "SoftmaxConfig",
    "T2FNorm",
    "method",
    "monte_carlo",
]
