"""What a pilot is told to run, as JSON values, from a job's spec and the files uploaded for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lodesman.jobs import JobSpec

Uploads = Mapping[str, tuple[str, int]]


def payload(spec: JobSpec, uploads: Uploads) -> dict[str, Any]:
    """The job as the pilots' protocol has it, but for id and attempt.

    `uploads`: name in InputSandbox -> (sha256, size), complete.
    """
    return {
        "spec": {
            "name": spec.name,
            "executable": spec.executable,
            "arguments": spec.arguments,
            "environment": spec.environment,
            "std_input": spec.std_input,
            "std_output": spec.std_output,
            "std_error": spec.std_error,
            "output_sandbox": spec.output_sandbox,
            "cores": spec.cores,
            "memory_mb": spec.memory_mb,
        },
        "input": [_input(name, uploads) for name in spec.input_sandbox],
        "limits": {
            "norm_cpu_seconds": spec.norm_cpu_seconds,
            "cpu_seconds": 0,
            "wall_seconds": spec.wall_seconds,
            "memory_mb": spec.memory_mb,
            "output_mb": spec.max_output_mb,
        },
        "exclusive": spec.exclusive,
    }


def _input(name: str, uploads: Uploads) -> dict[str, Any]:
    sha256, size = uploads[name]
    plain = name.rsplit("/", 1)[-1]
    return {"name": plain, "url": f"/v1/sandboxes/{sha256}", "sha256": sha256, "size": size, "unpack": False}
