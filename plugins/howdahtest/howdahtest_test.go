package howdahtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// answers is an API that answers as Howdah does.
type answers struct {
	mutex sync.Mutex
	calls []call
	// polls until a lease is ready
	polls int
}

type call struct {
	method, path string
	body         map[string]any
}

func (api *answers) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	_, path, _ := strings.Cut(request.URL.Path, "/projects/p1")
	var body map[string]any
	_ = json.NewDecoder(request.Body).Decode(&body)
	api.calls = append(api.calls, call{request.Method, path, body})
	if strings.HasSuffix(request.URL.Path, "/ca.pem") {
		fmt.Fprint(response, "pem")
		return
	}
	if request.Header.Get("Authorization") != "Bearer public:secret" {
		response.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(response, `{"message": "no valid key"}`)
		return
	}
	one := map[string]any{
		"id": "lease1", "role": "tsdbadmin", "database": "tsdb", "ready": api.polls == 0,
		"endpoint": map[string]any{"host": "127.0.0.1", "port": 5444},
	}
	switch path {
	case "/services":
		fmt.Fprint(response, `[{"service_id": "s1", "name": "orders"},
			{"service_id": "s2", "name": "twice"}, {"service_id": "s3", "name": "twice"}]`)
	case "/leases":
		one["initial_password"] = "p/w"
		_ = json.NewEncoder(response).Encode(map[string]any{"leases": []any{one}})
	case "/leases/lease1":
		api.polls--
		one["ready"] = api.polls == 0
		_ = json.NewEncoder(response).Encode(one)
	default:
		_ = json.NewEncoder(response).Encode(map[string]any{"leases": []any{one}})
	}
}

// bodies of the calls of a path
func (api *answers) bodies(path string) []map[string]any {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	var found []map[string]any
	for _, one := range api.calls {
		if one.path == path {
			found = append(found, one.body)
		}
	}
	return found
}

func serve(t *testing.T) *answers {
	api := &answers{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	t.Setenv("HD_API", server.URL)
	t.Setenv("HD_KEY", "public:secret")
	t.Setenv("HD_PROJECT", "https://elsewhere/projects/p1")
	t.Setenv("HOWDAH_LEASE_FROM", "orders")
	return api
}

func TestATestHasADatabaseWhichIsReturned(t *testing.T) {
	api := serve(t)
	var caFile string
	t.Run("with a database", func(t *testing.T) {
		database := New(t, Options{Reset: "database"})
		caFile = database.CAFile
		wanted := "postgresql://tsdbadmin:p%2Fw@127.0.0.1:5444/tsdb?sslmode=verify-full&sslrootcert="
		if !strings.HasPrefix(database.URL, wanted) {
			t.Errorf("found %s", database.URL)
		}
		if pem, err := os.ReadFile(caFile); err != nil || string(pem) != "pem" {
			t.Errorf("found %q, %v", pem, err)
		}
		if shown := database.String(); strings.Contains(shown, "p/w") {
			t.Errorf("the password is shown: %s", shown)
		}
	})
	taken := fmt.Sprint(api.bodies("/leases"))
	if taken != "[map[from:s1 reset:database ttl_seconds:120]]" {
		t.Errorf("taken: %s", taken)
	}
	if returned := fmt.Sprint(api.bodies("/leases/return")); returned != "[map[lease_ids:[lease1]]]" {
		t.Errorf("returned: %s", returned)
	}
	if _, err := os.Stat(caFile); !os.IsNotExist(err) {
		t.Errorf("%s was left: %v", caFile, err)
	}
}

func TestADatabaseThatIsBeingMadeIsWaitedFor(t *testing.T) {
	api := serve(t)
	api.polls = 3
	database, err := Take(Options{})
	if err != nil {
		t.Fatal(err)
	}
	database.Close()
	database.Close()
	if polls := len(api.bodies("/leases/lease1")); polls != 3 {
		t.Errorf("%d polls", polls)
	}
	if returned := len(api.bodies("/leases/return")); returned != 1 {
		t.Errorf("returned %d times", returned)
	}
}

func TestADatabaseIsExtendedWhileItIsUsed(t *testing.T) {
	api := serve(t)
	database, err := Take(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	go database.keep(time.Millisecond)
	for len(api.bodies("/leases/extend")) == 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestWorkThatFailsReturnsItsDatabase(t *testing.T) {
	api := serve(t)
	failed := fmt.Errorf("made to fail")
	if err := With(Options{}, func(*Database) error { return failed }); err != failed {
		t.Errorf("found %v", err)
	}
	if returned := len(api.bodies("/leases/return")); returned != 1 {
		t.Errorf("returned %d times", returned)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	serve(t)
	for from, wanted := range map[string]string{
		"nothing": "there is no service nothing; howdah service list shows them",
		"twice":   "several services are called twice; name one by its id",
	} {
		if _, err := Take(Options{From: from}); err == nil || err.Error() != wanted {
			t.Errorf("%s: found %v", from, err)
		}
	}
	t.Setenv("HD_KEY", "public:wrong")
	if _, err := Take(Options{From: "s1"}); err == nil || err.Error() != "no valid key" {
		t.Errorf("found %v", err)
	}
	t.Setenv("HOWDAH_LEASE_FROM", "")
	if _, err := Take(Options{}); err == nil || !strings.Contains(err.Error(), "HOWDAH_LEASE_FROM") {
		t.Errorf("found %v", err)
	}
}

func TestTheInstallationOnThisMachineIsFound(t *testing.T) {
	api := serve(t)
	url := os.Getenv("HD_API") + "/public/api/v1"
	home := t.TempDir()
	for _, name := range []string{"HD_API", "HD_KEY", "HD_PROJECT"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOWDAH_HOME", home)
	if _, err := Take(Options{}); err == nil || !strings.Contains(err.Error(), "howdah up") {
		t.Errorf("found %v", err)
	}
	own, err := json.Marshal(map[string]string{
		"api_url": url, "public_key": "public", "secret_key": "secret", "project_id": "p1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "credentials.json"), own, 0o600); err != nil {
		t.Fatal(err)
	}
	New(t, Options{})
	if !slices.ContainsFunc(api.calls, func(one call) bool { return one.path == "/leases" }) {
		t.Error("no lease was taken")
	}
}
