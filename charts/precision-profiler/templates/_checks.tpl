{{- /* What a schema can't say, or can't say in words that help. Included once; renders to nothing. */ -}}

{{- define "pp.checks" -}}
{{- $watched := include "pp.namespaces" . | fromJsonArray -}}
{{- range $at, $row := ternary .Values.acceptance.nodeCondition.profiles list .Values.acceptance.nodeCondition.enabled -}}
{{- if not (has $row.namespace $watched) -}}
{{- fail (printf "acceptance.nodeCondition.profiles[%d].namespace is %s: the operator does not watch it, so no Node would get a verdict. Add it to watchNamespaces." $at $row.namespace) -}}
{{- end -}}
{{- end -}}
{{- $levels := list "pool" "node" "detail" -}}
{{- $level := .Values.exporter.metricsLevel -}}
{{- if not (has $level $levels) -}}
{{- fail (printf "exporter.metricsLevel is %q: choose %s. pool shows pools, profiles and plans alone, node also every node, detail also single matrix sizes." $level (join " or " $levels)) -}}
{{- end -}}
{{- $shards := int .Values.exporter.shards -}}
{{- if or (lt $shards 1) (gt $shards 512) -}}
{{- fail (printf "exporter.shards is %d: choose 1 to 512. Count one shard for 1,000 reports, one of each node and profile; 10,000 nodes under 2 profiles need 20." $shards) -}}
{{- end -}}
{{- if and .Values.exporter.metricAllowlist .Values.exporter.metricDenylist -}}
{{- fail "exporter.metricAllowlist and exporter.metricDenylist are both set: choose one. What an allow list does not name is not shown." -}}
{{- end -}}
{{- if and (eq (toString .Values.rules.enabled) "true") (not .Values.exporter.enabled) -}}
{{- fail "rules.enabled needs exporter.enabled: every rule reads what the exporter shows, and its absence is an alert." -}}
{{- end -}}
{{- if and (eq (toString .Values.serviceMonitor.enabled) "true") (not .Values.exporter.enabled) -}}
{{- fail "serviceMonitor.enabled needs exporter.enabled: there is nothing else to scrape for the fleet." -}}
{{- end -}}
{{- $every := include "pp.milliseconds" .Values.serviceMonitor.interval | int64 -}}
{{- $within := include "pp.milliseconds" .Values.serviceMonitor.scrapeTimeout | int64 -}}
{{- if gt $within $every -}}
{{- fail (printf "serviceMonitor.scrapeTimeout is %s: it must not be longer than serviceMonitor.interval, %s, or Prometheus takes none of it." .Values.serviceMonitor.scrapeTimeout .Values.serviceMonitor.interval) -}}
{{- end -}}
{{- $labels := dict "extraLabels" .Values.extraLabels "operator.podLabels" .Values.operator.podLabels "exporter.podLabels" .Values.exporter.podLabels "agent.podLabels" .Values.agent.podLabels -}}
{{- range $where, $chosen := $labels -}}
{{- range $name, $_ := $chosen -}}
{{- if or (hasPrefix "app.kubernetes.io/" $name) (hasPrefix "helm.sh/" $name) (hasPrefix "precisionprofiler.io/" $name) -}}
{{- fail (printf "%s.%s: the chart sets labels of app.kubernetes.io, helm.sh and precisionprofiler.io itself; choose another name." $where $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.agent.priorityClass -}}
{{- $there := lookup "scheduling.k8s.io/v1" "PriorityClass" "" .name | default dict -}}
{{- if and .create $there (ne (int $there.value) (int .value)) -}}
{{- fail (printf "agent.priorityClass: %s is there with the value %d, and Kubernetes does not let it become %d: choose another agent.priorityClass.name." .name (int $there.value) (int .value)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $image := dict "operator" .Values.operator.image "agent" .Values.agent.image -}}
{{- $last := $image.repository | splitList "/" | last -}}
{{- if contains ":" $last -}}
{{- fail (printf "%s.image.repository is %s: move what follows the colon to %s.image.tag." $name $image.repository $name) -}}
{{- end -}}
{{- end -}}
{{- $known := include "pp.alertNames" . | fromJsonArray -}}
{{- range $name, $_ := .Values.rules.alerts -}}
{{- if not (has $name $known) -}}
{{- fail (printf "rules.alerts.%s: the chart has no alert of that name. It has: %s." $name (join ", " $known | default "none")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A duration of Prometheus, such as 1m30s, in milliseconds. */ -}}
{{- define "pp.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 -}}
{{- $sum = add $sum (mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- /* Names of all alerts in files/rules, as a JSON list. */ -}}
{{- define "pp.alertNames" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "files/rules/*.yaml" -}}
{{- range ($.Files.Get $path | fromYaml).groups -}}
{{- range .rules -}}
{{- with .alert }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- /* "true" where an object of prometheus-operator is wanted: asked for, or `auto` and its kind is known. */ -}}
{{- define "pp.monitoring" -}}
{{- $known := .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
{{- if or (eq (toString .enabled) "true") (and (eq (toString .enabled) "auto") $known) -}}
true
{{- end -}}
{{- end -}}
