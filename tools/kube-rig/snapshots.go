package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// The resources of snapshots.yaml.
var (
	snapshotGroup    = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	snapshotClasses  = snapshotGroup.WithResource("volumesnapshotclasses")
	snapshots        = snapshotGroup.WithResource("volumesnapshots")
	snapshotContents = snapshotGroup.WithResource("volumesnapshotcontents")
)

// snapshotter does what a snapshot controller and the sidecar of a driver do together: a snapshot
// is a read-only subvolume, with a VolumeSnapshotContent that outlives the VolumeSnapshot until the
// subvolume is deleted.
type snapshotter struct {
	client    dynamic.Interface
	directory string
	claims    corelisters.PersistentVolumeClaimLister
	// by resource
	listers map[schema.GroupVersionResource]cache.GenericLister
}

func (s snapshotter) list(
	resource schema.GroupVersionResource,
) ([]*unstructured.Unstructured, error) {
	objects, err := s.listers[resource].List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for _, object := range objects {
		found = append(found, object.(*unstructured.Unstructured))
	}
	return found, nil
}

func (s snapshotter) reconcile(ctx context.Context) error {
	all, err := s.list(snapshots)
	if err != nil {
		return err
	}
	var errs []error
	kept := map[string]bool{}
	for _, snapshot := range all {
		kept[string(snapshot.GetUID())] = true
		isReady, _, _ := unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
		if isReady || snapshot.GetDeletionTimestamp() != nil {
			continue
		}
		if err := s.take(ctx, snapshot); err != nil {
			errs = append(errs, s.report(ctx, snapshot, err))
		}
	}
	contents, err := s.list(snapshotContents)
	if err != nil {
		return err
	}
	for _, content := range contents {
		if text(content, "spec", "driver") == provisionerName &&
			!kept[text(content, "spec", "volumeSnapshotRef", "uid")] {
			errs = append(errs, s.remove(ctx, content))
		}
	}
	return errors.Join(errs...)
}

// take can be repeated after each of its steps.
func (s snapshotter) take(ctx context.Context, snapshot *unstructured.Unstructured) error {
	className := text(snapshot, "spec", "volumeSnapshotClassName")
	object, err := s.listers[snapshotClasses].Get(className)
	if err != nil {
		return err
	}
	class := object.(*unstructured.Unstructured)
	if text(class, "driver") != provisionerName {
		return nil // a snapshot of others
	}
	claim, err := s.claims.PersistentVolumeClaims(snapshot.GetNamespace()).
		Get(text(snapshot, "spec", "source", "persistentVolumeClaimName"))
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("the claim %s has no volume", claim.Name)
	}
	name := contentOf(snapshot)
	path := filepath.Join(s.directory, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		volume := filepath.Join(s.directory, claim.Spec.VolumeName)
		if err := btrfs("subvolume", "snapshot", "-r", volume, path); err != nil {
			return err
		}
	}
	content := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup.String(),
		"kind":       "VolumeSnapshotContent",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"deletionPolicy":          text(class, "deletionPolicy"),
			"driver":                  provisionerName,
			"source":                  map[string]any{"volumeHandle": claim.Spec.VolumeName},
			"volumeSnapshotClassName": className,
			"volumeSnapshotRef": map[string]any{
				"namespace": snapshot.GetNamespace(),
				"name":      snapshot.GetName(),
				"uid":       string(snapshot.GetUID()),
			},
		},
	}}
	_, err = s.client.Resource(snapshotContents).Create(ctx, content, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	size := claim.Status.Capacity[corev1.ResourceStorage]
	return s.writeStatus(ctx, snapshot, map[string]any{
		"boundVolumeSnapshotContentName": name,
		"creationTime":                   time.Now().UTC().Format(time.RFC3339),
		"error":                          nil,
		"readyToUse":                     true,
		"restoreSize":                    size.String(),
	})
}

// report writes why a snapshot cannot be taken, once.
func (s snapshotter) report(
	ctx context.Context, snapshot *unstructured.Unstructured, why error,
) error {
	if text(snapshot, "status", "error", "message") == why.Error() {
		return nil
	}
	return s.writeStatus(ctx, snapshot, map[string]any{
		"readyToUse": false,
		"error": map[string]any{
			"message": why.Error(),
			"time":    time.Now().UTC().Format(time.RFC3339),
		},
	})
}

func (s snapshotter) writeStatus(
	ctx context.Context, snapshot *unstructured.Unstructured, status map[string]any,
) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.client.Resource(snapshots).Namespace(snapshot.GetNamespace()).Patch(
		ctx, snapshot.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s snapshotter) remove(ctx context.Context, content *unstructured.Unstructured) error {
	if text(content, "spec", "deletionPolicy") != "Delete" {
		return nil
	}
	path := filepath.Join(s.directory, content.GetName())
	if _, err := os.Stat(path); err == nil {
		if err := btrfs("subvolume", "delete", path); err != nil {
			return err
		}
	}
	err := s.client.Resource(snapshotContents).Delete(
		ctx, content.GetName(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// sourceOf returns the subvolume that a new volume is a copy of; an empty string: it begins empty.
func (s snapshotter) sourceOf(claim *corev1.PersistentVolumeClaim) (string, error) {
	source := claim.Spec.DataSource
	if source == nil {
		return "", nil
	}
	if source.Kind != "VolumeSnapshot" {
		return "", fmt.Errorf("volumes are not made of a %s", source.Kind)
	}
	object, err := s.listers[snapshots].ByNamespace(claim.Namespace).Get(source.Name)
	if err != nil {
		return "", err
	}
	snapshot := object.(*unstructured.Unstructured)
	if isReady, _, _ := unstructured.NestedBool(snapshot.Object, "status", "readyToUse"); !isReady {
		return "", fmt.Errorf("the snapshot %s is not ready", source.Name)
	}
	size, err := resource.ParseQuantity(text(snapshot, "status", "restoreSize"))
	if err != nil {
		return "", err
	}
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if requested.Cmp(size) < 0 {
		return "", fmt.Errorf("%s is less than the snapshot %s has", &requested, source.Name)
	}
	return filepath.Join(s.directory, contentOf(snapshot)), nil
}

// contentOf is the name of its content and of its subvolume.
func contentOf(snapshot *unstructured.Unstructured) string {
	return "snapcontent-" + string(snapshot.GetUID())
}

func text(object *unstructured.Unstructured, fields ...string) string {
	found, _, _ := unstructured.NestedString(object.Object, fields...)
	return found
}
