"""What Spark itself costs: CPU of the JVM and its Python workers for each task and each item, with no work in them.

Tasks of one row give the price of a task; rows that go through mapInArrow untouched, as Arrow batches or through Python
objects, the price of an item inside Spark.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psutil

TASKS_FEW, TASKS_MANY = 4, 64
ITEMS = 5_000_000
PARALLELISM = 2


def _untouched(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _through_objects(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        yield pyarrow.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema)


def _cpu_seconds() -> float:
    """User and system time of all processes below this one, those that have ended included."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _cost(run: Callable[[], object]) -> float:
    before = _cpu_seconds()
    run()
    time.sleep(0.2)  # Python workers hand their counters over a little after the job
    return _cpu_seconds() - before


def _job(spark: Any, tasks: int, rows: int, function: Callable[[Iterable[Any]], Iterator[Any]]) -> Callable[[], object]:
    frame = spark.range(0, rows, 1, tasks).mapInArrow(function, "id long")
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _measure(spark: Any) -> dict[str, float]:
    for _ in range(3):
        _job(spark, TASKS_MANY, ITEMS // 10, _through_objects)()  # classes loaded, code compiled, workers forked
    few, many = (min(_cost(_job(spark, n, n, _untouched)) for _ in range(3)) for n in (TASKS_FEW, TASKS_MANY))
    arrow = min(_cost(_job(spark, TASKS_FEW, ITEMS, _untouched)) for _ in range(3))
    objects = min(_cost(_job(spark, TASKS_FEW, ITEMS, _through_objects)) for _ in range(2))
    return {
        "task_cpu_ms": (many - few) / (TASKS_MANY - TASKS_FEW) * 1e3,
        "item_arrow_cpu_us": (arrow - few) / ITEMS * 1e6,
        "item_objects_cpu_us": (objects - few) / ITEMS * 1e6,
    }


def _session() -> Any:
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").appName("spark-overhead")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure() -> dict[str, float]:
    """CPU of an empty task (ms) and of an item through mapInArrow (µs)."""
    spark = _session()
    try:
        return {name: round(value, 3) for name, value in _measure(spark).items()}
    finally:
        spark.stop()


def table(found: dict[str, float]) -> str:
    """The numbers for people, in Markdown, with what bulkexec's jobs pay of them."""
    segments, items = 1000, 10_000_000
    a_task = found["task_cpu_ms"]
    per_segment, few = segments * a_task * 1e3 / items, 8 * a_task * 1e3 / items
    return "\n".join(
        [
            "| what | CPU |",
            "|---|--:|",
            f"| an empty Python task | {a_task:.1f} ms |",
            f"| an item through mapInArrow, untouched | {found['item_arrow_cpu_us']:.3f} µs |",
            f"| an item through mapInArrow as Python objects | {found['item_objects_cpu_us']:.2f} µs |",
            f"| {items:,} items, {segments:,} segments, one task each | {per_segment:.3f} µs an item |",
            f"| the same in 8 tasks that each walk many segments, as bulkexec does | {few:.5f} µs an item |",
        ]
    )
