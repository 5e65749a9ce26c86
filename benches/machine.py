"""What a figure has to say about where it comes from."""

import datetime
import importlib.metadata
import os

import threadpoolctl

from fastemb import _info

from .gpu.about import revision

PEERS = {"torch": "torch", "fbgemm-gpu-cpu": "fbgemm", "gensim": "gensim"}
"""Packages beyond those that fastemb reports, and what they are called here."""


def machine():
    """Date, revision, CPU, threads, versions and BLAS of this process, as plain values."""
    report = _info.info()
    report["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report["revision"] = revision()
    report["versions"] |= dict(_peer_versions())
    report["blas"] = [
        {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return report


def _peer_versions():
    for package, name in PEERS.items():
        try:
            yield name, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def one_line(report):
    """The same in a line, for tables and plots."""
    versions = report["versions"]
    blas = ", ".join(
        f"{b['internal_api']} {b['version']} ({b['architecture']}, {b['num_threads']} threads)" for b in report["blas"]
    )
    return (
        f"{report['cpu']['model']}, {report['cpu']['cores']} cores; fastemb {versions['fastemb']} on "
        f"{report['threads']['count']} threads ({report['threads']['layer']}); Python {versions['python']}, "
        f"numpy {versions['numpy']}, numba {versions['numba']}, scipy {versions['scipy']}; {blas}"
    )


def warnings_of(report):
    """What would make figures of this process misleading, a sentence each."""
    found = []
    if "OPENBLAS_CORETYPE" in os.environ:
        found.append("OPENBLAS_CORETYPE is set: the matmul baseline may be slower than this machine can do.")
    if report["cache"]["folder"] is None:
        found.append("The compile cache is off: start-up is slow, the figures are not affected.")
    return found
