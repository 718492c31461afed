"""Where things lie in the deployment's bucket.

All of it is below one folder, so that an existing bucket with folders of the same names can be used: lifecycle rules,
permissions and teardown reach nothing else.
"""

ROOT = "bulkexec"
SCRIPTS = f"{ROOT}/scripts"
WHEELS = f"{ROOT}/wheels"
JOBS = f"{ROOT}/jobs"
"""One folder a job: plan, reports, lists of skipped and failed keys."""
RESULTS = f"{ROOT}/results"
TEMP = f"{ROOT}/temp"
"""Glue's own temporary files."""
