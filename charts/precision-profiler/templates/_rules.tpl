{{- /* The groups of a rule file (`file`), with what `rules` says: of single alerts, of labels and annotations of all, of
where runbooks are, of the series that are read and the labels that are kept, and of the clusters that must be there;
and clusterLabel in the place of the label cluster. The braces in an alert's annotations are Prometheus' own: they are
data here, and are never evaluated. */ -}}
{{- define "pp.ruleGroups" -}}
{{- $kept := prepend .rules.keepLabels .clusterLabel | join ", " -}}
{{- $far := get .rules.alerts "PrecisionPoolFarBelowBest" | default dict -}}
{{- /* An alert that is not there masks none: what it alone says is not recorded. */ -}}
{{- if eq (toString $far.enabled) "false" }}{{ $far = dict "threshold" 0 }}{{ end -}}
{{- $degraded := get .rules.alerts "PrecisionPoolDegraded" | default dict -}}
{{- if eq (toString $degraded.enabled) "false" }}{{ $degraded = merge (dict) $far (dict "threshold" 0.9) }}{{ end -}}
{{- $unsaid := list -}}
{{- range .file.groups -}}
{{- range .rules -}}
{{- if eq (toString (get (get $.rules.alerts (.alert | default "") | default dict) "enabled")) "false" }}{{ $unsaid = append (append $unsaid .expr) (regexReplaceAll "^m(?:ax|in) by [^)]*\\) \\(+|\\)$|\\) \\* .*| unless .*" .expr "") }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $groups := list -}}
{{- range $group := .file.groups -}}
{{- $rules := list -}}
{{- if eq $group.name "precision-programs" -}}
{{- range $.rules.clusters -}}
{{- $rules = append $rules (dict "record" "precision:cluster_expected" "expr" "vector(1)" "labels" (dict $.clusterLabel .)) -}}
{{- end -}}
{{- end -}}
{{- range $rule := $group.rules -}}
{{- $told := get $.rules.alerts ($rule.alert | default "") | default dict -}}
{{- if not (or (has $rule.expr $unsaid) (has $rule.record $unsaid) (has (printf "%s:lasting" $rule.record) $unsaid)) -}}
{{- with $told.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- with $told.keepFiringFor }}{{ $_ := set $rule "keep_firing_for" . }}{{ end -}}
{{- if hasKey $told "threshold" -}}
{{- $old := get ($rule.annotations | default dict) "threshold" -}}
{{- if not $old }}{{ fail (printf "rules.alerts.%s.threshold: this alert has no annotation of that name, and no threshold." $rule.alert) }}{{ end -}}
{{- $_ := set $rule "expr" (regexReplaceAll (printf "([<>+] )%s( |\\)|$)" (regexQuoteMeta $old)) $rule.expr (printf "${1}%s${2}" (toString $told.threshold))) -}}
{{- $_ := set $rule.annotations "description" ($rule.annotations.description | replace (quote $old) (toString $told.threshold | quote)) -}}
{{- $_ := set $rule.annotations "threshold" (toString $told.threshold) -}}
{{- end -}}
{{- if and (eq ($rule.alert | default "") "PrecisionPoolDegraded") (hasKey $far "threshold") -}}
{{- $_ := set $rule "expr" (replace " 0.9 > " (printf " %s > " (toString $far.threshold)) $rule.expr) -}}
{{- end -}}
{{- if hasKey $degraded "threshold" -}}
{{- $_ := set $rule "expr" (replace "(0.97 > precision:pool_deg" (printf "(%s > precision:pool_deg" (toString $degraded.threshold)) $rule.expr) -}}
{{- end -}}
{{- /* What is recorded by an alert's threshold follows it. */ -}}
{{- $by := list (get ($rule.labels | default dict) "fault") $rule.record -}}
{{- range $record, $of := dict "precision:node_story" (list "PrecisionThrottledInProfile" "> 0" ">") "precision:pool_degraded" (list "PrecisionPoolDegraded" "bool 0.97" "bool") -}}
{{- $own := get $.rules.alerts (first $of) | default dict -}}
{{- if and (has $record $by) (hasKey $own "threshold") -}}
{{- $_ := set $rule "expr" ($rule.expr | replace (index $of 1) (printf "%s %s" (last $of) (toString $own.threshold))) -}}
{{- end -}}
{{- end -}}
{{- range $by -}}
{{- range $word, $of := get (dict "throttled" (dict "slow" "PrecisionNodeSlow") "precision:node_story" (dict "slow" "PrecisionNodeSlow" "diverged" "PrecisionLossDiverged" "limited" "PrecisionPowerLimitLow" "precision:node_failed" "PrecisionNodeFailed" "fallback" "PrecisionSilentFallback" "throttled" "PrecisionThrottledInProfile" "not_accepted" "PrecisionNodeNotAccepted" "precision_node_quarantined" "PrecisionNodeQuarantined")) (. | default "") | default dict -}}
{{- if eq (toString (get (get $.rules.alerts $of | default dict) "enabled")) "false" }}{{ $_ := set $rule "expr" (regexReplaceAll (printf "\\b%s\\b" $word) $rule.expr "none") }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $label := ternary $.clusterLabel $kept (eq ($rule.alert | default "") "PrecisionClusterMissing") -}}
{{- $_ := set $rule "expr" (regexReplaceAll "\\bcluster\\b" $rule.expr $label) -}}
{{- with trimAll ", " $.rules.selector -}}
{{- $all := regexReplaceAll "\\b(precision_[a-z0-9_]+)" $rule.expr (. | replace "$" "$$" | printf "${1}{%s}") -}}
{{- $_ := set $rule "expr" ($all | replace (printf "{%s}{" .) (printf "{%s, " .)) -}}
{{- end -}}
{{- if $rule.alert -}}
{{- $texts := merge (dict) ($rule.annotations | default dict) $.rules.alertAnnotations -}}
{{- with $.rules.runbooks }}{{ $_ := set $texts "runbook_url" (printf "%s#%s" . (lower $rule.alert)) }}{{ end -}}
{{- range $name, $text := $texts -}}
{{- $_ := set $texts $name (regexReplaceAll "(abels\\.|\\{)cluster\\b" $text (printf "${1}%s" $.clusterLabel)) -}}
{{- end -}}
{{- if $texts }}{{ $_ := set $rule "annotations" $texts }}{{ end -}}
{{- $severity := empty $told.severity | ternary dict (dict "severity" $told.severity) -}}
{{- with merge $severity ($rule.labels | default dict) $.rules.alertLabels }}{{ $_ := set $rule "labels" . }}{{ end -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (merge (dict "rules" $rules) (omit $group "rules")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}
