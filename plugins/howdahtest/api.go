package howdahtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// client follows no redirect, which could carry the key elsewhere, and has a transport of its own:
// tests replace the default one. The API answers within 20 seconds.
var client = http.Client{
	Timeout:       time.Minute,
	Transport:     ownTransport(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func ownTransport() http.RoundTripper {
	if transport, isUsual := http.DefaultTransport.(*http.Transport); isUsual {
		return transport.Clone()
	}
	return http.DefaultTransport
}

type api struct {
	url     string
	key     string
	project string
}

type lease struct {
	ID       string `json:"id"`
	Endpoint struct {
		Host string `json:"host"`
		Port int    `json:"port"`
	} `json:"endpoint"`
	Role            string `json:"role"`
	Database        string `json:"database"`
	Ready           bool   `json:"ready"`
	Problem         string `json:"problem"`
	InitialPassword string `json:"initial_password"`
}

type leases struct {
	Leases []lease `json:"leases"`
}

type service struct {
	ID   string `json:"service_id"`
	Name string `json:"name"`
}

func (api api) take(from, reset string) (lease, error) {
	id, err := api.idOf(from)
	if err != nil {
		return lease{}, err
	}
	var taken leases
	body := map[string]any{"from": id, "reset": reset, "ttl_seconds": int(ttl.Seconds())}
	if err := api.call(http.MethodPost, "/leases", body, &taken); err != nil {
		return lease{}, err
	}
	if len(taken.Leases) != 1 {
		return lease{}, fmt.Errorf("the API answered with %d leases", len(taken.Leases))
	}
	return taken.Leases[0], nil
}

func (api api) read(id string) (lease, error) {
	var found lease
	err := api.call(http.MethodGet, "/leases/"+id, nil, &found)
	return found, err
}

func (api api) extend(id string) {
	body := map[string]any{"lease_ids": []string{id}, "ttl_seconds": int(ttl.Seconds())}
	_ = api.call(http.MethodPost, "/leases/extend", body, nil)
}

func (api api) giveBack(id string) {
	_ = api.call(http.MethodPost, "/leases/return", map[string]any{"lease_ids": []string{id}}, nil)
}

// known has the ids of services by what they were named by: many tests ask for the same one.
var known sync.Map

type naming struct{ url, project, name string }

// idOf finds the id of the service with an id or name.
func (api api) idOf(wanted string) (string, error) {
	key := naming{api.url, api.project, wanted}
	if id, isKnown := known.Load(key); isKnown {
		return id.(string), nil
	}
	id, err := api.find(wanted)
	if err == nil {
		known.Store(key, id)
	}
	return id, err
}

func (api api) find(wanted string) (string, error) {
	var services []service
	if err := api.call(http.MethodGet, "/services", nil, &services); err != nil {
		return "", err
	}
	var named []service
	for _, one := range services {
		if one.ID == wanted {
			return one.ID, nil
		}
		if one.Name == wanted {
			named = append(named, one)
		}
	}
	switch len(named) {
	case 0:
		return "", fmt.Errorf("there is no service %s; howdah service list shows them", wanted)
	case 1:
		return named[0].ID, nil
	default:
		return "", fmt.Errorf("several services are called %s; name one by its id", wanted)
	}
}

// call decodes the answer into found, unless that is nil.
func (api api) call(method, path string, body, found any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, api.url+"/projects/"+api.project+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+api.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := readAnswer(request)
	if err != nil || found == nil {
		return err
	}
	return json.Unmarshal(answer, found)
}

// readAnswer returns the body of an answer that is no error of the API.
func readAnswer(request *http.Request) ([]byte, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if response.StatusCode < 300 {
		return answer, nil
	}
	var problem struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &problem) == nil && problem.Message != "" {
		return nil, fmt.Errorf("%s", problem.Message)
	}
	return nil, fmt.Errorf("the API answered %d: %.200s", response.StatusCode, answer)
}

// writeCA writes the certificate of the authority to a file, which clients read it from, in a
// directory of its own.
func (api api) writeCA() (string, error) {
	request, err := http.NewRequest(http.MethodGet, api.url+"/ca.pem", nil)
	if err != nil {
		return "", err
	}
	pem, err := readAnswer(request)
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "howdahtest-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "ca.pem")
	if err := os.WriteFile(path, pem, 0o600); err != nil {
		_ = os.RemoveAll(directory)
		return "", err
	}
	return path, nil
}

// findAPI reads HD_API, HD_KEY and HD_PROJECT (howdah env), else the credentials of the
// installation on this machine.
func findAPI() (api, error) {
	url, key, project := os.Getenv("HD_API"), os.Getenv("HD_KEY"), os.Getenv("HD_PROJECT")
	if url != "" && key != "" && project != "" {
		// HD_PROJECT is the id of the project, or its address, which ends with the id.
		project = strings.TrimRight(project, "/")
		id := project[strings.LastIndex(project, "/")+1:]
		return api{url: withPath(url), key: key, project: id}, nil
	}
	path, err := credentialsPath()
	if err != nil {
		return api{}, err
	}
	text, err := os.ReadFile(path)
	if url != "" || key != "" || err != nil {
		return api{}, fmt.Errorf(
			"set HD_API, HD_KEY and HD_PROJECT (howdah env prints them), or run howdah up: %s", path)
	}
	var own struct {
		URL     string `json:"api_url"`
		Public  string `json:"public_key"`
		Secret  string `json:"secret_key"`
		Project string `json:"project_id"`
	}
	if err := json.Unmarshal(text, &own); err != nil {
		return api{}, fmt.Errorf("%s: %w", path, err)
	}
	url = strings.TrimRight(own.URL, "/")
	return api{url: url, key: own.Public + ":" + own.Secret, project: own.Project}, nil
}

func credentialsPath() (string, error) {
	home := os.Getenv("HOWDAH_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		home = filepath.Join(user, ".howdah")
	}
	return filepath.Join(home, "credentials.json"), nil
}

// withPath adds the path of the API to an address that has none.
func withPath(url string) string {
	url = strings.TrimRight(url, "/")
	if strings.Count(url, "/") > 2 {
		return url
	}
	return url + "/public/api/v1"
}
