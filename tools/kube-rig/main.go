// Kubernetes, etcd and two daemons of the rig in one program: they share most of their packages,
// so that compiling and linking them together takes a fraction of the time. The name that it is
// called by says which of them runs.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	command := commandOf(name)
	if command == nil {
		fmt.Fprintf(os.Stderr, "%s: not the name of a program of the rig\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// commandOf returns nil for a name that is unknown.
func commandOf(name string) *cobra.Command {
	switch name {
	case "etcd":
		// etcd reads its flags itself.
		return &cobra.Command{
			Use:                "etcd",
			DisableFlagParsing: true,
			Run:                func(*cobra.Command, []string) { etcdmain.Main(os.Args) },
		}
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	case "rig-dns":
		return dnsCommand()
	case "rig-volumes":
		return volumesCommand()
	default:
		return nil
	}
}
