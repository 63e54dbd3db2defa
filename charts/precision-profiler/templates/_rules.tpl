{{- /* The groups of a rule file, with what rules.alerts says of single alerts and rules.runbooks of where
runbooks are. The braces in an alert's annotations are
Prometheus' own: they are data here, and are never evaluated. */ -}}
{{- define "pp.ruleGroups" -}}
{{- $groups := list -}}
{{- range $group := .file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $told := get $.alerts ($rule.alert | default "") | default dict -}}
{{- if ne (toString (get $told "enabled")) "false" -}}
{{- with $told.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- with get ($rule.annotations | default dict) "runbook_url" -}}
{{- if $.runbooks }}{{ $_ := set $rule.annotations "runbook_url" (replace "docs/runbooks.md" $.runbooks .) }}{{ end -}}
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
