"""A client of anyqueue's HTTP service."""

from .client import Client
from .problem import Problem

__all__ = ["Client", "Problem"]
