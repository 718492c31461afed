"""Ctrl-C, SIGTERM and SIGHUP: the first drains, the second stops now."""

import signal
import threading
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DrainSignals:
    """While entered, signals are counted instead of killing the process.

    `draining` is set by the first one, `stopping` by the second; `on_signal(n)` is called in the main thread with the
    number of the signal. Must be entered in the main thread.
    """

    def __init__(self, on_signal: Callable[[int], None] = lambda number: None) -> None:
        self.draining, self.stopping = threading.Event(), threading.Event()
        self._on_signal, self._count = on_signal, 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "DrainSignals":
        for number in SIGNALS:
            # nohup asks that the end of the terminal is no reason to stop; that wish is kept.
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # exactly what signal.signal gave

    def _received(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        self.draining.set()
        if self._count >= 2:
            self.stopping.set()
        self._on_signal(self._count)
