"""`python -m benchmarks [client|fleet|fleet-real|spark|memory …]`: measure, and write down what was found."""

import subprocess
import sys

from benchmarks import client, document, endpoint, fleet_real, fleet_simulation, memory, spark_overhead


def run_client() -> None:
    """CPU per item on the canned endpoint."""
    rows = []
    for row in client.measure_all(endpoint.build()):
        rows.append(row)
        print(client.table([row]).splitlines()[-1], flush=True)
    document.write_entries(client.entries(rows))
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
}


def main(names: list[str]) -> int:
    """Run the named benchmarks; 2 for a name there is not."""
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
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
