"""The script of the Glue job: read the arguments, run the job's plan on Spark, leave with its outcome. No logic."""

import sys

from awsglue.context import GlueContext
from awsglue.job import Job
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext

from bulkexec.runtimes.spark import JobReference, run_job


def main() -> None:
    """Run one job run; a failed one ends with exit code 1, after its report was written."""
    names = ["JOB_NAME", "job_id", "run_number", "bucket", "control_table", "region"]
    arguments = getResolvedOptions(sys.argv, names)
    context = GlueContext(SparkContext.getOrCreate())
    job = Job(context)
    job.init(arguments["JOB_NAME"], arguments)
    reference = JobReference(
        job_id=arguments["job_id"],
        run_number=int(arguments["run_number"]),
        bucket=arguments["bucket"],
        control_table=arguments["control_table"],
        region=arguments["region"],
        # Reserved by Glue and always parsed, so it may not be in the list of names; absent outside of Glue.
        run_id=arguments.get("JOB_RUN_ID") or "",
    )
    if not run_job(context.spark_session, reference):
        sys.exit(1)
    job.commit()


if __name__ == "__main__":
    main()
