"""Packages that only fleets need, which are no part of the types."""

from __future__ import annotations

import importlib
from typing import Any

from .._errors import Error


def package(name: str) -> Any:
    """The package of this name.

    :raises Error: if it is not installed; the error says how to install it
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"fleets need {name} ({error}): pip install 'manylogs[fleet]'"
        raise Error(message, exit_code=2) from error


def toml(text: str) -> dict[str, Any]:
    """A TOML file's tables."""
    try:
        reader = importlib.import_module("tomllib")
    except ImportError:
        reader = package("tomli")
    found: dict[str, Any] = reader.loads(text)
    return found
