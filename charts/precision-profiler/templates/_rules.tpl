{{- /* The groups of a rule file, with what rules.alerts says of single alerts and rules.runbooks of where
runbooks are, and clusterLabel in the place of the label cluster. The braces in an alert's annotations are
Prometheus' own: they are data here, and are never evaluated. */ -}}
{{- define "pp.ruleGroups" -}}
{{- $groups := list -}}
{{- range $group := .file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $told := get $.alerts ($rule.alert | default "") | default dict -}}
{{- if ne (toString (get $told "enabled")) "false" -}}
{{- with $told.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- if and $rule.alert $.runbooks -}}
{{- $link := dict "runbook_url" (printf "%s#%s" $.runbooks (lower $rule.alert)) -}}
{{- $_ := set $rule "annotations" (merge $link ($rule.annotations | default dict)) -}}
{{- end -}}
{{- if ne $.clusterLabel "cluster" -}}
{{- $_ := set $rule "expr" (regexReplaceAll "\\bcluster\\b" $rule.expr $.clusterLabel) -}}
{{- range $name, $text := ($rule.annotations | default dict) -}}
{{- $_ := set $rule.annotations $name (regexReplaceAll "abels\\.cluster\\b" $text (printf "abels.%s" $.clusterLabel)) -}}
{{- end -}}
{{- end -}}
{{- with $told.severity }}{{ $_ := set $rule "labels" (merge (dict "severity" .) ($rule.labels | default dict)) }}{{ end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (merge (dict "rules" $rules) (omit $group "rules")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}
