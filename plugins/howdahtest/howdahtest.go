// Package howdahtest gives a test a database of its own: a copy of a service of Howdah, with its
// data, for the time of the test.
package howdahtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	// A killed runner leaves its databases for so long.
	ttl         = 2 * time.Minute
	readyWithin = time.Minute
	pollEvery   = 100 * time.Millisecond
)

// Options say what is copied, and how. The zero value takes HOWDAH_LEASE_FROM as a server.
type Options struct {
	// From is the id or name of the service; empty: HOWDAH_LEASE_FROM in the environment.
	From string
	// Reset is "server" (the default): a server of its own, with roles and settings; or
	// "database": a database in a server that tests share.
	Reset string
}

// Database is the database of a test.
type Database struct {
	// URL has the password, and the certificate of the server.
	URL      string
	Host     string
	Port     int
	User     string
	Password string
	// Name of the database in its server.
	Name string
	// CAFile is the certificate of the authority of the server, in PEM.
	CAFile  string
	LeaseID string

	api       api
	isClosed  chan struct{}
	closeOnce sync.Once
}

// New takes a database for a test, which is returned when the test ends. Without one, the test
// fails.
func New(t testing.TB, options Options) *Database {
	t.Helper()
	database, err := Take(options)
	if err != nil {
		t.Fatalf("no database for this test: %v", err)
	}
	t.Cleanup(database.Close)
	return database
}

// With calls work with a database, which is returned when the work ends, whatever the end.
func With(options Options, work func(*Database) error) error {
	database, err := Take(options)
	if err != nil {
		return err
	}
	defer database.Close()
	return work(database)
}

// Take takes a database that the caller closes.
func Take(options Options) (*Database, error) {
	from := options.From
	if from == "" {
		from = os.Getenv("HOWDAH_LEASE_FROM")
	}
	if from == "" {
		return nil, fmt.Errorf("name the service to copy: Options.From, or HOWDAH_LEASE_FROM")
	}
	reset := options.Reset
	if reset == "" {
		reset = "server"
	}
	api, err := findAPI()
	if err != nil {
		return nil, err
	}
	taken, err := api.take(from, reset)
	if err != nil {
		return nil, err
	}
	database, err := api.open(taken)
	if err != nil {
		api.giveBack(taken.ID)
		return nil, err
	}
	go database.keep(ttl / 3)
	return database, nil
}

// Close returns the database. If that cannot be done now, it ends by itself.
func (database *Database) Close() {
	database.closeOnce.Do(func() {
		close(database.isClosed)
		database.api.giveBack(database.LeaseID)
		_ = os.RemoveAll(filepath.Dir(database.CAFile))
	})
}

// String names the database without its password.
func (database *Database) String() string {
	return fmt.Sprintf("%s of the lease %s at %s:%d",
		database.Name, database.LeaseID, database.Host, database.Port)
}

// keep extends the lease until the database is closed. An extension that fails is made again by
// the next one.
func (database *Database) keep(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-database.isClosed:
			return
		case <-ticker.C:
			database.api.extend(database.LeaseID)
		}
	}
}

// open waits until a lease is ready, and says where it is.
func (api api) open(taken lease) (*Database, error) {
	password := taken.InitialPassword
	end := time.Now().Add(readyWithin)
	waited := !taken.Ready
	for !taken.Ready {
		if time.Now().After(end) {
			why := taken.Problem
			if why == "" {
				why = "it is being made"
			}
			return nil, fmt.Errorf("the database was not ready in time: %s", why)
		}
		time.Sleep(pollEvery)
		var err error
		if taken, err = api.read(taken.ID); err != nil {
			return nil, err
		}
	}
	if waited {
		api.extend(taken.ID)
	}
	caFile, err := api.writeCA()
	if err != nil {
		return nil, err
	}
	host, port := taken.Endpoint.Host, taken.Endpoint.Port
	address := url.URL{
		Scheme: "postgresql",
		User:   url.UserPassword(taken.Role, password),
		Host:   net.JoinHostPort(host, strconv.Itoa(port)),
		Path:   "/" + taken.Database,
		// libpq takes a plus for itself, not for a space.
		RawQuery: "sslmode=verify-full&sslrootcert=" + url.PathEscape(caFile),
	}
	return &Database{
		URL:      address.String(),
		Host:     host,
		Port:     port,
		User:     taken.Role,
		Password: password,
		Name:     taken.Database,
		CAFile:   caFile,
		LeaseID:  taken.ID,
		api:      api,
		isClosed: make(chan struct{}),
	}, nil
}
