// Streams, events and captures. A graph is the list of jobs that were launched while a stream was captured; events that
// were recorded in it get their times at each replay. One capture at a time, as one process makes them.
#include <set>
#include <vector>

#include "rehearsal.h"

namespace rehearsal {
namespace {
struct Event {
  double at = 0;  // when the queue reached it
  bool recorded = false;
  unsigned long long capture = 0;  // the capture that it orders, else 0
};

struct Node {
  Job job;
  Event* event;  // instead of the job
};

struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  Graph* graph = nullptr;  // nullptr: there is none
  bool lost = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::set<cudaStream_t> streams;
  unsigned long long id = 0;
};

constexpr double kGraphStartSeconds = 3e-6, kBetweenNodesSeconds = 1e-6, kGraphCallSeconds = 1e-5;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

Capture& capture() {
  static auto& one = *new Capture;
  return one;
}

bool lose_capture(bool when) {
  if (when) capture().lost = true;
  return when;
}

Event* of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }
Graph* of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Graph* of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }
}  // namespace

bool capturing(cudaStream_t stream) {
  Lock lock(all());
  return capture().graph && capture().streams.count(stream);
}

bool captured(cudaStream_t stream, const Job& job) {
  Lock lock(all());
  if (!capturing(stream)) return false;
  capture().graph->nodes.push_back({job, nullptr});
  return true;
}

bool spoils_capture() {
  Lock lock(all());
  bool strict = capture().mode != cudaStreamCaptureModeRelaxed && thread_mode != cudaStreamCaptureModeRelaxed;
  return lose_capture(capture().graph && strict);
}

bool spoils_capture(cudaStream_t stream) {
  Lock lock(all());
  return lose_capture(capturing(stream));
}

}  // namespace rehearsal

using namespace rehearsal;

extern "C" {
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(new char);  // an address of its own
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (spoils_capture(stream)) return told(cudaErrorStreamCaptureUnsupported);
  if (broken()) return told(cudaErrorIllegalAddress);
  return idle_at() <= now() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (spoils_capture(stream)) return told(cudaErrorStreamCaptureUnsupported);
  return finish();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(all());
  if (capture().graph && of(event)->capture == capture().id) capture().streams.insert(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  call(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t call, void* data) {
  call(data);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }  // kept: a graph may record it again

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  Lock lock(all());
  Event* found = of(event);
  found->recorded = true;
  if (!capturing(stream)) {
    found->capture = 0;
    found->at = idle_at();
  } else if (flags & cudaEventRecordExternal) {
    capture().graph->nodes.push_back({{}, found});
  } else {
    found->capture = capture().id;
  }
  return told(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(all());
  Capture& one = capture();
  bool strict = one.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
  if (lose_capture(one.graph && (of(event)->capture == one.id || strict)))
    return told(cudaErrorStreamCaptureUnsupported);
  if (broken()) return told(cudaErrorIllegalAddress);
  return now() >= of(event)->at ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (spoils_capture()) return told(cudaErrorStreamCaptureUnsupported);
  wait_until(of(event)->at);
  return told(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  Event *a = of(first), *b = of(second);
  if (!a->recorded || !b->recorded || a->capture || b->capture) return told(cudaErrorInvalidResourceHandle);
  if (b->at > now()) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((b->at - a->at) * 1e3);
  return told(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Lock lock(all());
  Capture& one = capture();
  if (one.graph || !stream) return told(cudaErrorStreamCaptureUnsupported);
  one = {new Graph, false, mode, {stream}, one.id + 1};
  return told(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  Lock lock(all());
  Capture& one = capture();
  if (!one.graph) return told(cudaErrorIllegalState);
  Graph* made = one.graph;
  one.graph = nullptr;
  one.streams.clear();
  *graph = nullptr;
  if (one.lost) {
    delete made;
    return told(cudaErrorStreamCaptureInvalidated);
  }
  *graph = reinterpret_cast<cudaGraph_t>(made);
  return told(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Lock lock(all());
  *status = !capturing(stream) ? cudaStreamCaptureStatusNone
            : capture().lost   ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData** edges,
#endif
                                     size_t* count) {
  Lock lock(all());
  if (id) *id = capture().id;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(capture().graph);
  if (dependencies) *dependencies = nullptr;
#if CUDART_VERSION >= 13000
  if (edges) *edges = nullptr;
#endif
  if (count) *count = 0;
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  cudaStreamCaptureMode old = thread_mode;
  thread_mode = *mode;
  *mode = old;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*of(graph)));
  return told(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = of(graph)->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*,
#if CUDART_VERSION >= 13000
                                         cudaGraphEdgeData*,
#endif
                                         size_t* count) {
  *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  Lock lock(all());
  if (broken()) return told(cudaErrorIllegalAddress);
  unsigned correlation = next_correlation();
  double called = now(), at = idle_at() + kGraphStartSeconds;
  record_call(Call::graph, called - kGraphCallSeconds, called, correlation);
  for (const Node& node : of(graph)->nodes) {
    if (node.event) {
      node.event->at = at;
      node.event->capture = 0;
    } else {
      at = enqueue(node.job, at, correlation) + kBetweenNodesSeconds;
    }
  }
  return cudaSuccess;
}
}
