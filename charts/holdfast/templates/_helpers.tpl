{{- define "holdfast.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "holdfast.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "holdfast.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* What selects all pods of this release. */ -}}
{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ include "holdfast.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* (dict "root" $ "component" name "workload" engine|signing|migration|test|monitoring) */ -}}
{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" .root }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
holdfast/workload: {{ .workload }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The labels of pods: without versions, so that a new chart alone starts nothing anew. */ -}}
{{- define "holdfast.podLabels" -}}
{{ include "holdfast.selector" .root }}
app.kubernetes.io/component: {{ .component }}
holdfast/workload: {{ .workload }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A number of the values is a float: printed as one, 500000000000 would be 5e+11. */ -}}
{{- define "holdfast.text" -}}
{{- if kindIs "float64" . -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{- /* The variables of all processes and those of a role, which win: (dict "root" $ "own" settings) */ -}}
{{- define "holdfast.settingsEnv" -}}
{{- $settings := deepCopy .root.Values.settings -}}
{{- /* Not by merge, which takes 0 and false for nothing. */ -}}
{{- range $key, $value := .own -}}{{- $_ := set $settings $key $value -}}{{- end -}}
{{- range $key, $value := $settings }}
- name: {{ $key }}
  value: {{ include "holdfast.text" $value | quote }}
{{- end }}
{{- end -}}

{{- /* A signing role with what signingDefaults adds, as JSON: (dict "root" $ "name" name) */ -}}
{{- define "holdfast.signingRole" -}}
{{- $role := deepCopy (get .root.Values.signing .name) -}}
{{- range $key, $value := .root.Values.signingDefaults -}}
{{- if not (hasKey $role $key) -}}{{- $_ := set $role $key $value -}}{{- end -}}
{{- end -}}
{{- if has .name (list "engine" "migrate" "metrics" "doctor" "dashboards") -}}
{{- fail (printf "signing.%s: the name is taken by another part of the release" .name) -}}
{{- end -}}
{{- $settings := deepCopy (default dict .root.Values.signingDefaults.settings) -}}
{{- range $key, $value := $role.settings -}}{{- $_ := set $settings $key $value -}}{{- end -}}
{{- $_ := set $role "settings" $settings -}}
{{- $role | toJson -}}
{{- end -}}

{{- /* The references that a process reads, as a JSON list of {env, secret, key}: (dict "root" $ "own" secrets-of-the-role "names" list) */ -}}
{{- define "holdfast.refs" -}}
{{- $env := dict "databaseUrl" "DATABASE_URL" "redisUrl" "REDIS_URL" "rpcUrl" "RPC_URL" "rpcReadUrls" "RPC_READ_URLS" "rpcBroadcastUrls" "RPC_BROADCAST_URLS" "adminToken" "ADMIN_TOKEN" "databaseOperatorUrl" "DATABASE_OPERATOR_URL" "databaseMigrationUrl" "DATABASE_MIGRATION_URL" "signerKeys" "SIGNER_KEYS" "signerRemoteUrls" "SIGNER_REMOTE_URLS" "journalKeys" "TX_JOURNAL_KEYS" "configFile" "HOLDFAST_CONFIG" -}}
{{- $owner := .root.Values.migration.secrets.databaseMigrationUrl.existingSecret -}}
{{- $found := list -}}
{{- $given := dict -}}
{{- range $name := .names -}}
{{- $ref := get (default dict $.own) $name | default dict -}}
{{- if not $ref.existingSecret -}}{{- $ref = get $.root.Values.secrets $name | default dict -}}{{- end -}}
{{- if $ref.existingSecret -}}
{{- if and (ne $name "databaseMigrationUrl") $owner (eq $ref.existingSecret $owner) -}}
{{- fail (printf "%s is read from Secret %s, which holds the owner of the schema: only the migration may name it" $name $owner) -}}
{{- end -}}
{{- $_ := set $given $name true -}}
{{- $found = append $found (dict "name" $name "env" (get $env $name) "secret" $ref.existingSecret "key" $ref.key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $given "configFile" -}}
{{- $kept := list -}}
{{- range $found -}}{{- if not (hasPrefix "rpc" .name) -}}{{- $kept = append $kept . -}}{{- end -}}{{- end -}}
{{- $found = $kept -}}
{{- end -}}
{{- range $name := .needed -}}
{{- if not (or (hasKey $given $name) (and (hasPrefix "rpc" $name) (hasKey $given "configFile"))) -}}
{{- fail (printf "%s needs a reference %s: name a Secret by existingSecret and a key in it" $.component $name) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- /* Variables that name the files of the references. */ -}}
{{- define "holdfast.refEnv" -}}
{{- range . }}
- name: {{ if eq .name "configFile" }}{{ .env }}{{ else }}{{ .env }}_FILE{{ end }}
  value: /run/secrets/holdfast/{{ .env }}
{{- end }}
{{- end -}}

{{- /* One volume with exactly the keys that are named, readable by the group of the process. */ -}}
{{- define "holdfast.refVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          name: {{ .secret }}
          items:
            - key: {{ .key | quote }}
              path: {{ .env }}
      {{- end }}
{{- end -}}

{{- define "holdfast.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "holdfast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "holdfast.probe" -}}
httpGet:
  path: {{ .path }}
  port: admin
periodSeconds: {{ .probe.periodSeconds }}
timeoutSeconds: {{ .probe.timeoutSeconds }}
failureThreshold: {{ .probe.failureThreshold }}
{{- end -}}
