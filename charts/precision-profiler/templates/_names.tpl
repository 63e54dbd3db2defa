{{- /* Names, labels, images, and what pods have in common. */ -}}

{{- define "pp.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* Cluster-scoped objects carry the namespace too: two releases of one name must not share a ClusterRole. */ -}}
{{- define "pp.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "pp.name" .) -}}
{{- end -}}

{{- define "pp.selector" -}}
app.kubernetes.io/name: precision-profiler
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "pp.labels" -}}
{{ include "pp.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with merge (dict) (.more | default dict) .root.Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Watched namespaces as a JSON list, sorted, each once. */ -}}
{{- define "pp.namespaces" -}}
{{- .Values.watchNamespaces | default (list .Release.Namespace) | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- define "pp.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "pp.agentImage" -}}
{{- include "pp.image" (dict "root" . "image" .Values.agent.image) -}}
{{- end -}}

{{- /* Allowed prefixes as a JSON list; fails where the default agent would be refused by the operator itself. */ -}}
{{- define "pp.allowedImages" -}}
{{- $image := include "pp.agentImage" . -}}
{{- $allowed := .Values.agent.allowedImages | default (list .Values.agent.image.repository) -}}
{{- $fits := false -}}
{{- range $allowed -}}
{{- $rest := trimPrefix . $image -}}
{{- if and (hasPrefix . $image) (or (hasSuffix "/" .) (eq $rest "") (hasPrefix "/" $rest) (and (hasPrefix ":" $rest) (not (contains "/" $rest))) (hasPrefix "@" $rest)) -}}
{{- $fits = true -}}
{{- end -}}
{{- end -}}
{{- if not $fits -}}
{{- fail (printf "agent.image is %s, but agent.allowedImages allows %s only: the operator would refuse every profile. Add the image's repository to agent.allowedImages." $image (join ", " $allowed)) -}}
{{- end -}}
{{- $allowed | toJson -}}
{{- end -}}

{{- /* What agents get where their profile says nothing, as JSON; empty where there is nothing to say. */ -}}
{{- define "pp.agentDefaults" -}}
{{- $told := dict -}}
{{- with .Values.agent.queueName }}{{ $_ := set $told "queueName" . }}{{ end -}}
{{- with .Values.agent.runtimeClassName }}{{ $_ := set $told "runtimeClassName" . }}{{ end -}}
{{- with .Values.agent.tolerations }}{{ $_ := set $told "tolerations" . }}{{ end -}}
{{- with .Values.agent.schedulerName }}{{ $_ := set $told "schedulerName" . }}{{ end -}}
{{- with merge (dict) .Values.agent.podLabels .Values.extraLabels }}{{ $_ := set $told "podLabels" . }}{{ end -}}
{{- if ne (toJson .Values.agent.flavorLabels) (toJson (list "nvidia.com/gpu.product")) }}{{ $_ := set $told "flavorLabels" .Values.agent.flavorLabels }}{{ end -}}
{{- with .Values.agent.podAnnotations }}{{ $_ := set $told "podAnnotations" . }}{{ end -}}
{{- $security := include "pp.chosenSecurity" (dict "root" . "own" .Values.agent.podSecurityContext) | fromJson -}}
{{- range $field := list "runAsUser" "runAsGroup" -}}
{{- $id := get $security $field -}}
{{- if not $id }}{{ $_ := set $told $field nil }}{{ else if ne (int64 $id) 65532 }}{{ $_ := set $told $field $id }}{{ end -}}
{{- end -}}
{{- $told = merge $told (omit $security "runAsUser" "runAsGroup") -}}
{{- if $told }}{{ toJson $told }}{{ end -}}
{{- end -}}

{{- /* The policy that holds the operator to its one condition of Nodes. One name in a cluster: Helm refuses a second release
that would write the same condition, and where it is forced in the operator that the policy does not hold writes nothing. */ -}}
{{- define "pp.conditionPolicy" -}}
precision-profiler-node-condition
{{- end -}}

{{- /* What the operator may write to Nodes, as JSON; empty: nothing. */ -}}
{{- define "pp.nodeCondition" -}}
{{- if .Values.acceptance.nodeCondition.enabled -}}
{{ dict "policy" (include "pp.conditionPolicy" .) "profiles" .Values.acceptance.nodeCondition.profiles "taints" .Values.acceptance.gateTaints | toJson }}
{{- end -}}
{{- end -}}

{{- /* The limits of all namespaces together, as JSON; empty where nothing is limited. */ -}}
{{- define "pp.fleetLimits" -}}
{{- $told := dict -}}
{{- range $field := list "maxConcurrent" "powerBudgetWatts" "pools" "perTopology" -}}
{{- with get $.Values.fleetLimits $field }}{{ $_ := set $told $field . }}{{ end -}}
{{- end -}}
{{- if $told }}{{ set $told "poolLabel" .Values.fleetLimits.poolLabel | toJson }}{{ end -}}
{{- end -}}

{{- /* The fields of a pod's securityContext that are chosen, as JSON: a component's own come before those of all. */ -}}
{{- define "pp.chosenSecurity" -}}
{{- $chosen := dict -}}
{{- range $field, $value := merge (dict) (.own | default dict) (.root.Values.podSecurityContext | default dict) -}}
{{- if $value }}{{ $_ := set $chosen $field $value }}{{ end -}}
{{- end -}}
{{- toJson $chosen -}}
{{- end -}}

{{- define "pp.podSecurity" -}}
runAsNonRoot: true
{{- with include "pp.chosenSecurity" . | fromJson }}
{{ toYaml . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Ready is asked for as soon as the process serves, and often: a pod is ready two seconds after its first lists. The
port is one of its own: who crowds the metrics must not have the kubelet end the leader. */ -}}
{{- define "pp.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end -}}

{{- define "pp.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* "true" where operator and exporter have NetworkPolicies: asked for, or `auto` and there is somebody to let in. */ -}}
{{- define "pp.network" -}}
{{- with .Values.networkPolicy -}}
{{- if or (eq (toString .enabled) "true") (and (eq (toString .enabled) "auto") .scrapeFrom) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pp.placement" -}}
{{- $fields := pick . "nodeSelector" "tolerations" "affinity" "priorityClassName" "schedulerName" -}}
{{- range $name, $value := $fields }}{{ if not $value }}{{ $_ := unset $fields $name }}{{ end }}{{ end -}}
{{- if $fields }}{{ toYaml $fields }}{{ end -}}
{{- end -}}

{{- /* Of a component that runs more than once: its pods on several nodes, each rollout spread by itself (pods that are
about to go don't count). */ -}}
{{- define "pp.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "pp.selector" . | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}

{{- define "pp.disruptionBudget" }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "pp.name" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "pp.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "pp.selector" . | nindent 6 }}
{{- end }}

{{- /* The arguments of the election; fails where the operator would refuse to start. */ -}}
{{- define "pp.election" -}}
{{- with .Values.operator.leaderElection -}}
{{- $lease := int .leaseSeconds -}}
{{- $renew := int .renewDeadlineSeconds -}}
{{- $retry := int .retrySeconds -}}
{{- if le $lease $renew -}}
{{- fail (printf "operator.leaderElection.leaseSeconds is %d: it must be longer than renewDeadlineSeconds, %d, or two replicas could lead at once." $lease $renew) -}}
{{- end -}}
{{- if le (mul 10 $renew) (mul 12 $retry) -}}
{{- fail (printf "operator.leaderElection.renewDeadlineSeconds is %d: it must be longer than 1.2 times retrySeconds, %d, or one slow answer ends a leader." $renew $retry) -}}
{{- end -}}
- --leader-elect
- --lease-name={{ include "pp.name" $ }}-operator
- --lease-seconds={{ $lease }}
- --renew-deadline={{ $renew }}
- --retry={{ $retry }}
{{- end -}}
{{- end -}}

{{- /* The rules without those for resource claims where these are switched off: a dict of rules and root. */ -}}
{{- define "pp.granted" -}}
{{- $kept := list }}
{{- range .rules }}
{{- if or $.root.Values.dra.enabled (not (has "resource.k8s.io" .apiGroups)) }}
{{- $kept = append $kept . }}
{{- end }}
{{- end }}
{{- toYaml $kept }}
{{- end }}
