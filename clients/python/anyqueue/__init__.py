"""A client for anyqueue's HTTP service, and a worker built on it."""

from .client import Client
from .problem import Problem
from .task import Cancel, Poison, Postpone, Task
from .version import VERSION as __version__
from .worker import Worker

__all__ = ["Cancel", "Client", "Poison", "Postpone", "Problem", "Task", "Worker", "__version__"]
