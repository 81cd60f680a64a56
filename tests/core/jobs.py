"""What helper processes are asked in tests: quick jobs, long ones, some that end their process, fail or warn."""

import logging
import os
import time
from typing import Any

from core.processes import serve_jobs


def worker(job: Any) -> list[Any]:
    """The job and who works on it."""
    time.sleep(0.01)
    return [job, os.getpid()]


def slow(job: Any) -> list[Any]:
    """As `worker`, after a minute."""
    time.sleep(60)
    return worker(job)


def deadly(job: Any) -> Any:
    """Ends the process that works on it."""
    os._exit(3)


def failing(job: Any) -> Any:
    """Is never answered."""
    raise ValueError("This job cannot be done.")


def warning(job: Any) -> Any:
    """Is answered, and warned of."""
    logging.getLogger(__name__).warning("This job is strange: %s", job)
    return job


if __name__ == "__main__":
    serve_jobs()
