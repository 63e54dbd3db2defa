// gpu-device-plugin offers simulated GPUs to a kubelet, by the device plugin API that NVIDIA's plugin uses.
//
// A device listed in the file of --unhealthy (one ID a line) is reported as unhealthy for as long as it stands there.
// --mount HOST:CONTAINER and --env NAME=VALUE are given to every container that gets a device, as NVIDIA's plugin gives
// it the driver's files, and NVIDIA_VISIBLE_DEVICES names its devices. The plugin registers again after a restart of the
// kubelet, which deletes all sockets.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "nvidia.com/gpu"
	endpoint = "simulated-gpu.sock"
	poll     = 200 * time.Millisecond
)

type words []string

func (w *words) String() string     { return strings.Join(*w, ",") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

type plugin struct {
	api.UnimplementedDevicePluginServer
	count     int
	unhealthy string
	response  *api.ContainerAllocateResponse
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	last := "none yet"
	for stream.Context().Err() == nil {
		text, _ := os.ReadFile(p.unhealthy)
		if current := string(text); current != last {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices(current)}); err != nil {
				return err
			}
			last = current
		}
		time.Sleep(poll)
	}
	return nil
}

func (p *plugin) devices(unhealthy string) []*api.Device {
	bad := map[string]bool{}
	for _, id := range strings.Fields(unhealthy) {
		bad[id] = true
	}
	devices := make([]*api.Device, 0, p.count)
	for i := range p.count {
		device := &api.Device{ID: fmt.Sprintf("GPU-%d", i), Health: api.Healthy}
		if bad[device.ID] {
			device.Health = api.Unhealthy
		}
		devices = append(devices, device)
	}
	return devices
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		envs := maps.Clone(p.response.Envs)
		envs["NVIDIA_VISIBLE_DEVICES"] = strings.Join(container.DevicesIds, ",")
		response := &api.ContainerAllocateResponse{Envs: envs, Mounts: p.response.Mounts}
		answer.ContainerResponses = append(answer.ContainerResponses, response)
	}
	return answer, nil
}

func serve(folder string, p *plugin) error {
	socket := filepath.Join(folder, endpoint)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	defer server.Stop()
	if err := register(folder); err != nil {
		return err
	}
	log.Printf("registered %d devices as %s", p.count, resource)
	for {
		time.Sleep(poll)
		if _, err := os.Stat(socket); err != nil {
			return fmt.Errorf("the kubelet has restarted: %w", err)
		}
	}
}

func register(folder string) error {
	target := "unix://" + filepath.Join(folder, "kubelet.sock")
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
		Options:      &api.DevicePluginOptions{},
	})
	return err
}

func main() {
	var mounts, variables words
	folder := flag.String("folder", api.DevicePluginPath, "folder of the kubelet's sockets")
	count := flag.Int("gpus", 8, "how many devices to offer")
	unhealthy := flag.String("unhealthy", "/nonexistent", "file that lists the IDs of unhealthy devices")
	flag.Var(&mounts, "mount", "HOST:CONTAINER, read-only; may be repeated")
	flag.Var(&variables, "env", "NAME=VALUE; may be repeated")
	flag.Parse()
	response := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	for _, mount := range mounts {
		host, container, _ := strings.Cut(mount, ":")
		response.Mounts = append(response.Mounts, &api.Mount{HostPath: host, ContainerPath: container, ReadOnly: true})
	}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		response.Envs[name] = value
	}
	for {
		log.Print(serve(*folder, &plugin{count: *count, unhealthy: *unhealthy, response: response}))
		time.Sleep(poll)
	}
}
