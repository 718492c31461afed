"""`python -m benchmarks [client|fleet|fleet-real|spark|memory|import …]`: measure, and write down what was found.

`python -m benchmarks --case copy --endpoint "TLS, 5 ms"` measures a part of `client` and writes nothing down.
"""

import argparse
import subprocess
import sys

from benchmarks import client, cold_import, document, endpoint, fleet_real, fleet_simulation, memory, spark_overhead
from benchmarks.cases import CASES


def run_client() -> None:
    """CPU per item on the canned endpoint."""
    rows = []
    for row in client.measure_all(endpoint.build()):
        rows.append(row)
        print(client.table([row]).splitlines()[-1], flush=True)
    document.write_json("results.json", client.entries(rows))
    document.write_section("client", client.table(rows))


def run_memory() -> None:
    """Resident memory against the sandbox."""
    entries = memory.measure()
    document.write_json("memory.json", entries)
    document.write_section("memory", memory.table(entries))
    print(memory.table(entries), flush=True)


def run_spark() -> None:
    """Spark's own costs."""
    found = spark_overhead.measure()
    document.write_json("spark_overhead.json", found)
    document.write_section("spark", spark_overhead.table(found))
    print(spark_overhead.table(found), flush=True)


def run_import() -> None:
    """What the Python API adds to a start."""
    found = cold_import.measure()
    document.write_json("cold_import.json", found)
    document.write_section("import", cold_import.table(found))
    print(cold_import.table(found), flush=True)


def run_fleet() -> None:
    """The fleet's rate limit in virtual time."""
    entries = []
    for entry in fleet_simulation.results():
        entries.append(entry)
        print(fleet_simulation.line(entry), flush=True)
    document.write_json("fleet.json", entries)
    document.write_section("fleet", "\n".join(["```", *map(fleet_simulation.line, entries), "```"]))


def run_fleet_real() -> None:
    """The fleet's rate limit with real processes against the sandbox."""
    found = fleet_real.measure()
    document.write_json("fleet_real.json", found)
    document.write_section("fleet-real", fleet_real.table_of(found))
    print(fleet_real.table_of(found), flush=True)


BENCHMARKS = {
    "client": run_client,
    "fleet": run_fleet,
    "fleet-real": run_fleet_real,
    "spark": run_spark,
    "memory": run_memory,
    "import": run_import,
}


def show_client(cases: list[str], endpoints: list[str]) -> None:
    """Some cases on some endpoints; all of what is not named."""
    chosen = tuple(case for case in CASES if case.name in (cases or [case.name]))
    variants = tuple(each for each in endpoint.VARIANTS if str(each) in (endpoints or [str(each)]))
    for row in client.measure_all(endpoint.build(), chosen, variants):
        print(client.table([row]).splitlines()[-1], flush=True)


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, all if none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="benchmark", help=", ".join(BENCHMARKS))
    parser.add_argument("--case", action="append", default=[], choices=[case.name for case in CASES])
    parser.add_argument("--endpoint", action="append", default=[], choices=[str(each) for each in endpoint.VARIANTS])
    chosen = parser.parse_args(arguments)
    names: list[str] = chosen.names
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    if chosen.case or chosen.endpoint:
        if names not in ([], ["client"]):
            parser.error("--case and --endpoint are of the benchmark client alone")
        show_client(chosen.case, chosen.endpoint)
        return 0
    if len(names) == 1:
        BENCHMARKS[names[0]]()
        return 0
    for name in names or BENCHMARKS:
        print(f"# {name}", flush=True)
        # Each in a process of its own: they set environment and cores to their liking.
        subprocess.run([sys.executable, "-m", "benchmarks", name], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
