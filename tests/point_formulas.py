"""Fourier features by their definition, and the settings that they are tested with."""

import numpy as np

from fastemb.nn import FourierFeatures

SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0), (2, 3, 4)]

FEATURES = {
    "none": lambda **options: None,
    "log": lambda **options: FourierFeatures(3, 4, **options),
    "log and input": lambda **options: FourierFeatures(3, 2, include_input=True, **options),
    "gaussian": lambda **options: FourierFeatures(3, 5, kind="gaussian", scale=0.7, seed=1, **options),
    "gaussian and input": lambda **options: FourierFeatures(3, 1, kind="gaussian", include_input=True, **options),
}


def tolerance(dtype):
    return {"float16": 2e-3, "bfloat16": 1e-2, "float32": 3e-6, "float64": 1e-14}[np.dtype(dtype).name]


def plain_features(waves, points):
    """The definition, in float64."""
    p = np.asarray(points, np.float64)
    angles = 2 * np.pi * p @ waves.frequencies.astype(np.float64).T
    return np.concatenate([p] * waves.include_input + [np.sin(angles), np.cos(angles)], axis=-1)
