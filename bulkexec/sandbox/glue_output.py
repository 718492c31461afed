"""Carries a job run's output into CloudWatch Logs while it runs."""

import logging
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import IO, Any

from bulkexec.sandbox.logs import LogStreamWriter

logger = logging.getLogger(__name__)

OUTPUT_GROUP = "/aws-glue/jobs/output"
ERROR_GROUP = "/aws-glue/jobs/error"

CHUNK_BYTES = 65_536


class RunOutput:
    """The four streams of a run: the driver's stdout and stderr, and its executor's.

    The driver's streams are named by the run id, the executor's `<run id>_g-<hex>`, as Glue names them. In local mode
    all Python workers belong to one executor. Whatever a worker prints is taken from files that the run's
    `sitecustomize` diverts it to (see glue_stage); what the JVM prints is the driver's.
    """

    def __init__(
        self, client: Any, run_id: str, executor: str, process: "subprocess.Popen[bytes]", directory: Path, lines: int
    ) -> None:
        driver = (
            LogStreamWriter(client, OUTPUT_GROUP, run_id, lines),
            LogStreamWriter(client, ERROR_GROUP, run_id, lines),
        )
        executors = (
            LogStreamWriter(client, OUTPUT_GROUP, f"{run_id}_{executor}", lines),
            LogStreamWriter(client, ERROR_GROUP, f"{run_id}_{executor}", lines),
        )
        self._writers = [*driver, *executors]
        self._pipes = selectors.DefaultSelector()
        for pipe, writer in zip((process.stdout, process.stderr), driver, strict=True):
            assert pipe is not None  # the caller asked for both pipes
            self._pipes.register(pipe, selectors.EVENT_READ, (pipe, writer))
        names = ("executor.out", "executor.err")
        self._files = [_Tail(directory / name, writer) for name, writer in zip(names, executors, strict=True)]

    def pump(self, wait_seconds: float) -> None:
        """Moves what there is, waiting at most `wait_seconds` for it."""
        if not self._pipes.get_map():
            time.sleep(wait_seconds)
        self._read(wait_seconds)
        for file in self._files:
            file.read()
        self._flush(final=False)

    def drain(self) -> None:
        """Moves all that is left; every process that could write must be dead."""
        while self._pipes.get_map():
            self._read(0)
        for file in self._files:
            file.read()
        self._pipes.close()
        self._flush(final=True)

    def _read(self, wait_seconds: float) -> None:
        for key, _events in self._pipes.select(wait_seconds):
            pipe, writer = key.data
            data = os.read(key.fd, CHUNK_BYTES)
            writer.write(data)
            if not data:
                self._pipes.unregister(pipe)
                pipe.close()

    def _flush(self, *, final: bool) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        for writer in self._writers:
            try:
                writer.flush(final=final)
            except (BotoCoreError, ClientError) as error:
                # A log agent that cannot deliver must not end the run.
                logger.warning("lost some output of %s: %s", writer, error)


class _Tail:
    """A file that grows."""

    def __init__(self, path: Path, writer: LogStreamWriter) -> None:
        self._path, self._writer = path, writer
        self._file: IO[bytes] | None = None

    def read(self) -> None:
        """Passes on what was added since the last time."""
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        if self._file is not None:
            self._writer.write(self._file.read())
