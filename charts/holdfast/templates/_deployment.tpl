{{- /*
The Deployment of a role, with its ServiceAccount and its budget:
(dict "root" $ "component" name "workload" engine|signing "role" word-of-serve "spec" values-of-the-role "refs" list)
*/ -}}
{{- define "holdfast.deployment" -}}
{{- $root := .root -}}
{{- $spec := .spec -}}
{{- $values := $root.Values -}}
{{- $name := printf "%s-%s" (include "holdfast.fullname" $root) .component -}}
{{- $labels := include "holdfast.labels" (dict "root" $root "component" .component "workload" .workload) -}}
{{- $longest := add (int $spec.preStopSleepSeconds) (int $spec.shutdownDeadlineSeconds) -}}
{{- if le (int $spec.terminationGracePeriodSeconds) (int $longest) -}}
{{- fail (printf "%s: terminationGracePeriodSeconds %d must be above preStopSleepSeconds + shutdownDeadlineSeconds = %d, or the drain is cut short" .component (int $spec.terminationGracePeriodSeconds) (int $longest)) -}}
{{- end -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with $values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with $spec.pool }}
  annotations:
    holdfast/pool: {{ .name | quote }}
    {{- with .identities }}
    holdfast/identities: {{ join "," . | quote }}
    {{- end }}
  {{- end }}
spec:
  replicas: {{ $spec.replicas }}
  revisionHistoryLimit: 5
  progressDeadlineSeconds: 900
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  selector:
    matchLabels:
      {{- include "holdfast.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    metadata:
      labels:
        {{- include "holdfast.podLabels" (dict "root" $root "component" .component "workload" .workload) | nindent 8 }}
        holdfast/admin: "true"
      {{- with $spec.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: false
      # Variables of other Services would look like misspelt settings.
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $spec.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "holdfast.podSecurity" $root | nindent 8 }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $spec.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      topologySpreadConstraints:
        {{- range $spec.topologySpread }}
        - topologyKey: {{ .topologyKey }}
          maxSkew: {{ .maxSkew }}
          whenUnsatisfiable: {{ .whenUnsatisfiable }}
          matchLabelKeys: [pod-template-hash]
          labelSelector:
            matchLabels:
              {{- include "holdfast.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $.component }}
        {{- end }}
      {{- with $spec.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $spec.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $spec.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: holdfast
          image: {{ include "holdfast.image" $root | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: [serve, --role, {{ .role }}]
          env:
            # The name that `holdfast jobs drain` and the workers table know this process by.
            - name: INSTANCE_ID
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: INFRASTRUCTURE_REQUIRED
              value: "true"
            - name: HOLDFAST_ROLE
              value: {{ .role }}
            {{- if eq .workload "engine" }}
            - name: HTTP_LISTEN
              value: {{ printf "%s:%d" $values.listenHost (int $values.httpPort) | quote }}
            {{- end }}
            - name: ADMIN_LISTEN
              value: {{ printf "%s:%d" $values.listenHost (int $values.adminPort) | quote }}
            - name: SHUTDOWN_DEADLINE_SECONDS
              value: {{ $spec.shutdownDeadlineSeconds | int | quote }}
            {{- with $spec.journalActiveKeyId }}
            - name: TX_JOURNAL_ACTIVE_KEY_ID
              value: {{ . | quote }}
            {{- end }}
            {{- with include "holdfast.settingsEnv" (dict "root" $root "own" $spec.settings) | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- include "holdfast.refEnv" .refs | trim | nindent 12 }}
          ports:
            {{- if eq .workload "engine" }}
            - name: http
              containerPort: {{ $values.httpPort }}
            {{- end }}
            - name: admin
              containerPort: {{ $values.adminPort }}
          startupProbe:
            {{- include "holdfast.probe" (dict "path" "/startupz" "probe" $values.probes.startup) | nindent 12 }}
          readinessProbe:
            {{- include "holdfast.probe" (dict "path" "/readyz" "probe" $values.probes.readiness) | nindent 12 }}
          # It asks no dependency: a database that is away is no reason to kill a signer.
          livenessProbe:
            {{- include "holdfast.probe" (dict "path" "/livez" "probe" $values.probes.liveness) | nindent 12 }}
          # The process drains itself on SIGTERM, which follows this wait.
          lifecycle:
            preStop:
              sleep:
                seconds: {{ $spec.preStopSleepSeconds }}
          resources:
            {{- toYaml $spec.resources | nindent 12 }}
          securityContext:
            {{- include "holdfast.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - name: secrets
              mountPath: /run/secrets/holdfast
              readOnly: true
      volumes:
        {{- include "holdfast.refVolume" .refs | nindent 8 }}
{{- if and $values.podDisruptionBudget.enabled (gt (int $spec.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  minAvailable: 1
  # A pod that is not ready protects nothing and must not hold up a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "holdfast.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}
