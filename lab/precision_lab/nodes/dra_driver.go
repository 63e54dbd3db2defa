// gpu-dra-driver hands out simulated GPUs by resource claim, by the API that NVIDIA's DRA driver uses.
//
// It publishes the devices of --devices (a JSON list, as a ResourceSlice has them) as the node's pool, and prepares a
// claim by a CDI specification of its own: a device node for each GPU, and the folder --inside with the file `gpus`,
// a line `gpu UUID` for each. --mount HOST:CONTAINER and --env NAME=VALUE are given to every container with a claim.
//
// While the file of --fault holds text, what a broken driver does is done: `fail MESSAGE` refuses to prepare, `add UUID`
// hands over a GPU that is not the claim's, `drop` keeps one back.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	driverName = "gpu.nvidia.com"
	kind       = "k8s.gpu.nvidia.com/claim"
	prefix     = "k8s.gpu.nvidia.com-claim_"
)

type words []string

func (w *words) String() string     { return strings.Join(*w, ",") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

// object is one of the CDI specification; NVIDIA's driver writes the same fields by the library of that project.
type object map[string]any

type driver struct {
	cdi, inside, fault string
	uuids              map[string]string // by the device's name
	mounts, variables  []string
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answer := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		answer[claim.UID] = d.prepare(claim)
		log.Printf("prepared claim %s/%s (%s): %d devices, error %v", claim.Namespace, claim.Name, claim.UID,
			len(answer[claim.UID].Devices), answer[claim.UID].Err)
	}
	return answer, nil
}

func (d *driver) prepare(claim *resource.ResourceClaim) kubeletplugin.PrepareResult {
	text, _ := os.ReadFile(d.fault)
	fault, value, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if fault == "fail" {
		return kubeletplugin.PrepareResult{Err: errors.New(value)}
	}
	result := kubeletplugin.PrepareResult{}
	var devices []object
	var lines []string
	for _, given := range claim.Status.Allocation.Devices.Results {
		if given.Driver != driverName {
			continue
		}
		name := string(claim.UID) + "-" + given.Device
		result.Devices = append(result.Devices, kubeletplugin.Device{
			Requests: []string{given.Request}, PoolName: given.Pool, DeviceName: given.Device,
			CDIDeviceIDs: []string{kind + "=" + name},
		})
		node := object{"path": "/dev/nvidia" + strings.TrimPrefix(given.Device, "gpu-"), "hostPath": "/dev/null"}
		devices = append(devices, object{"name": name, "containerEdits": object{"deviceNodes": []object{node}}})
		lines = append(lines, "gpu "+d.uuids[given.Device])
	}
	switch fault {
	case "add":
		lines = append(lines, "gpu "+value)
	case "drop":
		lines = lines[1:]
	}
	result.Err = d.write(claim.UID, devices, lines)
	return result
}

func (d *driver) write(uid types.UID, devices []object, lines []string) error {
	folder := filepath.Join(d.cdi, string(uid))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "gpus"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	mounts := []object{mount(folder, d.inside)}
	for _, pair := range d.mounts {
		host, container, _ := strings.Cut(pair, ":")
		mounts = append(mounts, mount(host, container))
	}
	// As NVIDIA's driver does: the value of an image that asks for all GPUs must not count.
	variables := append([]string{"NVIDIA_VISIBLE_DEVICES=void"}, d.variables...)
	document, err := json.Marshal(object{
		"cdiVersion": "0.6.0", "kind": kind, "devices": devices,
		"containerEdits": object{"env": variables, "mounts": mounts},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(d.specification(uid), document, 0o644)
}

func (d *driver) specification(uid types.UID) string {
	return filepath.Join(d.cdi, prefix+string(uid)+".json")
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	answer := map[types.UID]error{}
	for _, claim := range claims {
		log.Printf("unprepared claim %s/%s (%s)", claim.Namespace, claim.Name, claim.UID)
		answer[claim.UID] = errors.Join(remove(d.specification(claim.UID)), remove(filepath.Join(d.cdi, string(claim.UID))))
	}
	return answer, nil
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
}

func mount(host, container string) object {
	return object{"hostPath": host, "containerPath": container, "options": []string{"ro", "bind"}}
}

// remove takes away a file or a folder; one that is not there is no error: a claim may be unprepared twice.
func remove(path string) error { return os.RemoveAll(path) }

// read returns the published devices, and the UUID of each by its name.
func read(path string) ([]resource.Device, map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var devices []resource.Device
	if err := json.Unmarshal(text, &devices); err != nil {
		return nil, nil, errors.New(strconv.Quote(path) + ": " + err.Error())
	}
	uuids := map[string]string{}
	for _, device := range devices {
		uuids[device.Name] = *device.Attributes["uuid"].StringValue
	}
	return devices, uuids, nil
}

func run(ctx context.Context, d *driver, kubeconfig, node, devicesFile, kubeletRoot string) error {
	devices, uuids, err := read(devicesFile)
	if err != nil {
		return err
	}
	d.uuids = uuids
	configuration, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	data := filepath.Join(kubeletRoot, "plugins", driverName)
	for _, folder := range []string{d.cdi, data} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.KubeClient(kubernetes.NewForConfigOrDie(configuration)),
		kubeletplugin.NodeName(node),
		kubeletplugin.DriverName(driverName),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubeletRoot, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	log.Printf("%d devices of %s are published as %s", len(devices), node, driverName)
	<-ctx.Done()
	return nil
}

func main() {
	var mounts, variables words
	d := &driver{}
	kubeconfig := flag.String("kubeconfig", "", "of the API server")
	node := flag.String("node", "", "the node's name")
	devices := flag.String("devices", "", "file with the devices to publish")
	kubeletRoot := flag.String("kubelet-root", "/var/lib/kubelet", "the kubelet's --root-dir")
	flag.StringVar(&d.cdi, "cdi", "/var/run/cdi", "folder of CDI specifications that the container runtime reads")
	flag.StringVar(&d.inside, "inside", "/opt/claimed-gpus", "folder that a container with a claim finds its GPUs in")
	flag.StringVar(&d.fault, "fault", "/nonexistent", "file that says what goes wrong")
	flag.Var(&mounts, "mount", "HOST:CONTAINER, read-only; may be repeated")
	flag.Var(&variables, "env", "NAME=VALUE; may be repeated")
	flag.Parse()
	d.mounts, d.variables = mounts, variables
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, d, *kubeconfig, *node, *devices, *kubeletRoot); err != nil {
		log.Fatal(err)
	}
}
