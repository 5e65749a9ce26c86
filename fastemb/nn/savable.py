"""Layers that can be saved."""

from __future__ import annotations

import os
from typing import Self


class Savable:
    """A layer with a `state_dict` that `fastemb.io` knows."""

    def save(self, path: str | os.PathLike[str], *, progress: bool | None = None) -> None:
        """Write the layer to a safetensors file: see `fastemb.io.save_layer`.

        Parameters
        ----------
        path : str or os.PathLike
            The file. Whenever the writer is stopped, it is the old one or the new one.
        progress : bool, optional
            A progress bar on stderr. By default on a terminal, if rich is installed.

        Raises
        ------
        OSError
            The file cannot be written.
        TypeError
            A layer or an optimizer of a class of your own.
        """
        from ..io import save_layer  # which knows all layers

        save_layer(self, path, progress=progress)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, progress: bool | None = None) -> Self:
        """Read a layer that `save` wrote, or a folder of `fastemb.io.Checkpointer`: see `fastemb.io.load_layer`.

        Parameters
        ----------
        path : str or os.PathLike
            The file or the folder.
        progress : bool, optional
            A progress bar on stderr. By default on a terminal, if rich is installed.

        Returns
        -------
        layer
            Of this class; training goes on with the same bits.

        Raises
        ------
        OSError
            A file cannot be read.
        TypeError
            The file holds a layer of another class.
        ValueError
            A file that is truncated, altered, or of another program.
        """
        from ..io import load_layer

        layer: Self = load_layer(path, cls, progress=progress)
        return layer
