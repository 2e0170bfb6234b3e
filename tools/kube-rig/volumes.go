package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// The names that Kubernetes gives to what a scheduler and a provisioner write on objects.
const (
	provisionerName         = "kube-rig/btrfs"
	selectedNodeAnnotation  = "volume.kubernetes.io/selected-node"
	provisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)

// provisioner makes volumes of type "local". Each is a subvolume of one btrfs, whose size is the
// limit of a quota group: a full volume is full, and it grows while it is mounted.
type provisioner struct {
	client    kubernetes.Interface
	directory string
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
	classes   storagelisters.StorageClassLister
	snapshots snapshotter
}

func volumesCommand() *cobra.Command {
	var kubeconfig, directory string
	command := &cobra.Command{Use: "rig-volumes", Args: cobra.NoArgs}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	command.Flags().StringVar(&directory, "directory", "", "a mounted btrfs with quotas")
	command.RunE = func(*cobra.Command, []string) error {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		resources, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		return provide(context.Background(), client, resources, directory)
	}
	return command
}

func provide(
	ctx context.Context, client kubernetes.Interface, resources dynamic.Interface, directory string,
) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	resourceFactory := dynamicinformer.NewDynamicSharedInformerFactory(resources, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	volumes := factory.Core().V1().PersistentVolumes()
	classes := factory.Storage().V1().StorageClasses()
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default: // a notification is waiting already
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		UpdateFunc: func(_, object any) { notify(object) },
		DeleteFunc: notify,
	}
	watched := []cache.SharedIndexInformer{claims.Informer(), volumes.Informer()}
	listers := map[schema.GroupVersionResource]cache.GenericLister{}
	for _, resource := range []schema.GroupVersionResource{
		snapshotClasses, snapshots, snapshotContents,
	} {
		informer := resourceFactory.ForResource(resource)
		listers[resource] = informer.Lister()
		watched = append(watched, informer.Informer())
	}
	for _, informer := range watched {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	s := snapshotter{resources, directory, claims.Lister(), listers}
	p := provisioner{client, directory, claims.Lister(), volumes.Lister(), classes.Lister(), s}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	resourceFactory.Start(ctx.Done())
	resourceFactory.WaitForCacheSync(ctx.Done())
	for {
		if err := errors.Join(s.reconcile(ctx), p.reconcile(ctx)); err != nil {
			klog.Error(err)
		}
		// After a failure nothing may change any more: the timer tries again.
		select {
		case <-changed:
		case <-time.After(time.Second):
		}
	}
}

func (p provisioner) reconcile(ctx context.Context) error {
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, claim := range claims {
		if err := p.reconcileClaim(ctx, claim); err != nil {
			errs = append(errs, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err))
		}
	}
	volumes, err := p.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		isOurs := volume.Annotations[provisionedByAnnotation] == provisionerName
		if isOurs && volume.Status.Phase == corev1.VolumeReleased {
			errs = append(errs, p.remove(ctx, volume))
		}
	}
	return errors.Join(errs...)
}

func (p provisioner) reconcileClaim(
	ctx context.Context, claim *corev1.PersistentVolumeClaim,
) error {
	if claim.Spec.StorageClassName == nil || claim.DeletionTimestamp != nil {
		return nil
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil || class.Provisioner != provisionerName {
		return nil // a claim of others
	}
	if claim.Spec.VolumeName == "" {
		if claim.Annotations[selectedNodeAnnotation] == "" {
			return nil // no pod uses it yet
		}
		return p.provision(ctx, claim, class)
	}
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if claim.Status.Phase == corev1.ClaimBound &&
		requested.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) > 0 {
		return p.expand(ctx, claim)
	}
	return nil
}

func (p provisioner) provision(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) error {
	name := "pvc-" + string(claim.UID)
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	path := filepath.Join(p.directory, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		source, err := p.snapshots.sourceOf(claim)
		if err != nil {
			return err
		}
		arguments := []string{"create", path}
		if source != "" {
			arguments = []string{"snapshot", source, path}
		}
		if err := btrfs(append([]string{"subvolume"}, arguments...)...); err != nil {
			return err
		}
	}
	if err := btrfs("qgroup", "limit", fmt.Sprint(size.Value()), path); err != nil {
		return err
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{provisionedByAnnotation: provisionerName},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes,
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: size},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: onNode(claim.Annotations[selectedNodeAnnotation]),
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: path},
			},
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			StorageClassName:              class.Name,
			VolumeMode:                    claim.Spec.VolumeMode,
		},
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func onNode(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{node},
			}},
		}},
	}}
}

// expand writes the new size to the volume first: the claim's capacity is what its user sees.
func (p provisioner) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	path := filepath.Join(p.directory, claim.Spec.VolumeName)
	if err := btrfs("qgroup", "limit", fmt.Sprint(size.Value()), path); err != nil {
		return err
	}
	capacity := map[string]any{"capacity": map[string]string{"storage": size.String()}}
	patch, err := json.Marshal(map[string]any{"spec": capacity})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().PersistentVolumes().Patch(
		ctx, claim.Spec.VolumeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	patch, err = json.Marshal(map[string]any{"status": capacity})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(
		ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (p provisioner) remove(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if _, err := os.Stat(volume.Spec.Local.Path); err == nil {
		if err := btrfs("subvolume", "delete", volume.Spec.Local.Path); err != nil {
			return err
		}
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(
		ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func btrfs(arguments ...string) error {
	output, err := exec.Command("btrfs", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("btrfs %v: %w: %s", arguments, err, output)
	}
	return nil
}
