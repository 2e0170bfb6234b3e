"""A test of somebody's project, against a real installation: it has rows, and psql."""

import subprocess


def test_rows_of_the_service_are_there(howdah_url, howdah_database):
    count = ["psql", howdah_url, "-Atqc", "select count(*) from items"]
    assert subprocess.run(count, capture_output=True, text=True, check=True).stdout == "100\n"
    print(f"lease {howdah_database.lease_id} has 100 rows")
