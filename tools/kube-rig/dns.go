package main

import (
	"context"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const domain = ".svc.cluster.local."

// names resolves the names of services, as CoreDNS does in other clusters.
type names struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

func dnsCommand() *cobra.Command {
	var kubeconfig, listen string
	command := &cobra.Command{Use: "rig-dns", Args: cobra.NoArgs}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	command.Flags().StringVar(&listen, "listen", "", "address and UDP port")
	command.RunE = func(*cobra.Command, []string) error {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		all := names{
			services: factory.Core().V1().Services().Lister(),
			slices:   factory.Discovery().V1().EndpointSlices().Lister(),
		}
		ctx := context.Background()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		return all.serve(listen)
	}
	return command
}

func (n names) serve(listen string) error {
	connection, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		length, client, err := connection.ReadFrom(buffer)
		if err != nil {
			return err
		}
		var query dnsmessage.Message
		if query.Unpack(buffer[:length]) != nil || len(query.Questions) != 1 {
			continue
		}
		answer := n.answer(query)
		if packed, err := answer.Pack(); err == nil {
			// A client that is gone asks no more: nothing is lost.
			_, _ = connection.WriteTo(packed, client)
		}
	}
}

// answer has addresses for questions of type A only. A question of another type about a known name
// gets an empty answer: "no such name" would end the client's search.
func (n names) answer(query dnsmessage.Message) dnsmessage.Message {
	question := query.Questions[0]
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID:                 query.ID,
			Response:           true,
			Authoritative:      true,
			RecursionDesired:   query.RecursionDesired,
			RecursionAvailable: true,
		},
		Questions: query.Questions,
	}
	if target, isAlias := n.aliasOf(question.Name.String()); isAlias {
		answer.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{
				Name: question.Name, Type: dnsmessage.TypeCNAME, Class: question.Class, TTL: 1,
			},
			Body: &dnsmessage.CNAMEResource{CNAME: target},
		}}
		return answer
	}
	addresses, isKnown := n.lookup(question.Name.String())
	if !isKnown {
		answer.RCode = dnsmessage.RCodeNameError
	}
	if question.Type != dnsmessage.TypeA {
		return answer
	}
	for _, address := range addresses {
		if v4 := net.ParseIP(address).To4(); v4 != nil {
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{
					Name: question.Name, Type: question.Type, Class: question.Class, TTL: 1,
				},
				Body: &dnsmessage.AResource{A: [4]byte(v4)},
			})
		}
	}
	return answer
}

// aliasOf is the name that a Service of the type ExternalName stands for. The answer is that alone:
// CoreDNS adds the addresses of the name if it knows them.
func (n names) aliasOf(name string) (target dnsmessage.Name, isAlias bool) {
	parts, isOurs := strings.CutSuffix(strings.ToLower(name), domain)
	service, namespace, isPair := strings.Cut(parts, ".")
	if !isOurs || !isPair {
		return target, false
	}
	found, err := n.services.Services(namespace).Get(service)
	if err != nil || found.Spec.Type != corev1.ServiceTypeExternalName {
		return target, false
	}
	target, err = dnsmessage.NewName(strings.TrimSuffix(found.Spec.ExternalName, ".") + ".")
	return target, err == nil
}

// lookup knows SERVICE.NAMESPACE, and HOST.SERVICE.NAMESPACE for the pods of a headless service.
func (n names) lookup(name string) (addresses []string, isKnown bool) {
	parts, isOurs := strings.CutSuffix(strings.ToLower(name), domain)
	labelsOfName := strings.Split(parts, ".")
	count := len(labelsOfName)
	if !isOurs || count < 2 {
		return nil, false
	}
	host := strings.Join(labelsOfName[:count-2], ".")
	service, err := n.services.Services(labelsOfName[count-1]).Get(labelsOfName[count-2])
	if err != nil {
		return nil, false
	}
	if host == "" && service.Spec.ClusterIP != corev1.ClusterIPNone {
		return []string{service.Spec.ClusterIP}, true
	}
	addresses = n.podsOf(service, host)
	return addresses, host == "" || len(addresses) > 0
}

func (n names) podsOf(service *corev1.Service, host string) (addresses []string) {
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name})
	slices, err := n.slices.EndpointSlices(service.Namespace).List(selector)
	if err != nil {
		return nil
	}
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready
			isReady := ready == nil || *ready || service.Spec.PublishNotReadyAddresses
			isMeant := host == "" || (endpoint.Hostname != nil && *endpoint.Hostname == host)
			if isReady && isMeant {
				addresses = append(addresses, endpoint.Addresses...)
			}
		}
	}
	return addresses
}
