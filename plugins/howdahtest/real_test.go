//go:build real

package howdahtest

import (
	"os/exec"
	"testing"
)

// A test of somebody's project, against a real installation: it has rows, and psql.
func TestRowsOfTheServiceAreThere(t *testing.T) {
	database := New(t, Options{})
	count := exec.Command("psql", database.URL, "-Atqc", "select count(*) from items")
	rows, err := count.CombinedOutput()
	if err != nil || string(rows) != "100\n" {
		t.Fatalf("%v: %s", err, rows)
	}
	t.Logf("lease %s has 100 rows", database.LeaseID)
}
