{{/* One service: Deployment, headless Service, disruption budget. Called with
     (dict "root" $ "name" "admission"). */}}

{{/* Copies the keyring to where its mode can be 0600: a Secret's files belong to root, and are either
     unreadable for us or readable for a group, which the service refuses. */}}
{{- define "tenure.keyringInit" -}}
- name: keyring
  image: {{ include "tenure.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [install, -m, "0600", /run/tenure-given/keyring.json, /run/tenure/keyring.json]
  securityContext: {{- include "tenure.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {cpu: 100m, memory: 32Mi}
  volumeMounts:
    - {name: keyring, mountPath: /run/tenure-given, readOnly: true}
    - {name: run, mountPath: /run/tenure}
{{- if include "tenure.keepsSecrets" . }}
- name: lease-secrets
  image: {{ include "tenure.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [install, -m, "0600", /run/tenure-given/secrets.json, /run/tenure/secrets.json]
  securityContext: {{- include "tenure.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {cpu: 100m, memory: 32Mi}
  volumeMounts:
    - {name: lease-secrets, mountPath: /run/tenure-given, readOnly: true}
    - {name: run, mountPath: /run/tenure}
{{- end }}
{{- end -}}

{{/* Whether this service has the keys for secrets of leases: admission alone, where a Secret is named. */}}
{{- define "tenure.keepsSecrets" -}}
{{- if and (eq .name "admission") .root.Values.leaseSecrets.existingSecret }}yes{{ end -}}
{{- end -}}

{{- define "tenure.probes" -}}
{{- $port := .port | int -}}
{{- $health := index (include "tenure.health" .root | fromJson) .name -}}
{{- if ne (include "tenure.tlsMode" .root) "none" }}
startupProbe:
  tcpSocket: {port: {{ $port }}}
  periodSeconds: 2
  failureThreshold: 90
readinessProbe:
  tcpSocket: {port: {{ $port }}}
  periodSeconds: 5
livenessProbe:
  tcpSocket: {port: {{ $port }}}
  periodSeconds: 10
{{- else }}
startupProbe:
  grpc: {port: {{ $port }}}
  periodSeconds: 2
  failureThreshold: 90
readinessProbe:
  grpc: {port: {{ $port }}, service: {{ $health }}}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  grpc: {port: {{ $port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
{{- end -}}

{{- define "tenure.serviceEnv" -}}
- name: TENURE_LISTEN
  value: {{ printf "%s:%d" .root.Values.listenHost (.port | int) | quote }}
- name: TENURE_INSTANCE
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: TENURE_KEYRING_FILE
  value: /run/tenure/keyring.json
- name: TENURE_SECRETS_DIR
  value: /run/tenure-secrets
{{- if include "tenure.keepsSecrets" . }}
- name: TENURE_SECRET_KEYS_FILE
  value: /run/tenure/secrets.json
{{- end }}
{{- if .root.Values.metrics.enabled }}
- name: TENURE_METRICS_LISTEN
  value: {{ printf "%s:9100" .root.Values.listenHost | quote }}
{{- end }}
{{- include "tenure.commonEnv" . }}
{{- if include "tenure.elects" . }}
{{- with include "tenure.etcdEndpoints" .root }}
- name: TENURE_ETCD_ENDPOINTS
  value: {{ . | quote }}
{{- end }}
{{- if .root.Values.etcd.tlsSecret }}
- name: TENURE_ETCD_CA
  value: /run/tenure-etcd/ca.crt
{{- if .root.Values.etcd.clientCertificate }}
- name: TENURE_ETCD_CERTIFICATE
  value: /run/tenure-etcd/tls.crt
- name: TENURE_ETCD_PRIVATE_KEY
  value: /run/tenure-etcd/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- include "tenure.settings" .values.settings }}
{{- end -}}

{{- define "tenure.serviceVolumes" -}}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 4Mi}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: keyring
  secret:
    secretName: {{ include "tenure.keysSecret" .root }}
    defaultMode: 0440
    items: [{key: keyring.json, path: keyring.json}]
{{- if include "tenure.keepsSecrets" . }}
- name: lease-secrets
  secret:
    secretName: {{ .root.Values.leaseSecrets.existingSecret }}
    defaultMode: 0440
    items: [{key: secrets.json, path: secrets.json}]
{{- end }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "tenure.databaseSecret" .root }}
          items: [{key: {{ include "tenure.databaseKey" .root }}, path: tenure_database_dsn}]
      - secret:
          name: {{ include "tenure.keysSecret" .root }}
          items: [{key: {{ .name }}.key, path: tenure_api_key}]
      {{- if and (include "tenure.elects" .) .root.Values.etcd.existingSecret }}
      - secret:
          name: {{ .root.Values.etcd.existingSecret }}
          items: [{key: user, path: tenure_etcd_user}, {key: password, path: tenure_etcd_password}]
      {{- end }}
{{- if ne (include "tenure.tlsMode" .root) "none" }}
{{ include "tenure.tlsVolume" . }}
{{- end }}
{{- if and (include "tenure.elects" .) .root.Values.etcd.tlsSecret }}
- name: etcd
  secret: {secretName: {{ .root.Values.etcd.tlsSecret }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "tenure.deployment" -}}
{{- $port := index (include "tenure.ports" .root | fromJson) .name -}}
{{- $values := index .root.Values .name -}}
{{- $at := merge (dict "port" $port "values" $values) . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "tenure.component" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tenure.labels" . | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 5
  strategy:
    {{- if eq .name "autoscaler" }}
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  selector:
    matchLabels: {{- include "tenure.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "tenure.labels" . | nindent 8 }}
      annotations:
        tenure/keys-revision: {{ .root.Values.keys.revision | quote }}
    spec:
      serviceAccountName: {{ include "tenure.serviceAccount" .root }}
      automountServiceAccountToken: false
      # Otherwise Kubernetes sets TENURE_…_PORT and the like for Services of this name.
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      securityContext: {{- include "tenure.podSecurity" (dict "uid" 10001) | nindent 8 }}
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "tenure.placement" $values }}
      {{- . | nindent 6 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "tenure.selector" . | nindent 14 }}
      initContainers: {{- include "tenure.keyringInit" . | nindent 8 }}
      containers:
        - name: {{ .name }}
          image: {{ include "tenure.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [-m, tenure_{{ .name }}]
          env: {{- include "tenure.serviceEnv" $at | nindent 12 }}
          ports:
            - {name: grpc, containerPort: {{ $port | int }}, protocol: TCP}
            {{- if .root.Values.metrics.enabled }}
            - {name: metrics, containerPort: 9100, protocol: TCP}
            {{- end }}
          {{- include "tenure.probes" $at | nindent 10 }}
          securityContext: {{- include "tenure.containerSecurity" . | nindent 12 }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: run, mountPath: /run/tenure, readOnly: true}
            - {name: secrets, mountPath: /run/tenure-secrets, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- if ne (include "tenure.tlsMode" .root) "none" }}
            - {name: tls, mountPath: /run/tenure-tls, readOnly: true}
            {{- end }}
            {{- if and (include "tenure.elects" .) .root.Values.etcd.tlsSecret }}
            - {name: etcd, mountPath: /run/tenure-etcd, readOnly: true}
            {{- end }}
      volumes: {{- include "tenure.serviceVolumes" $at | nindent 8 }}
{{- end -}}

{{- define "tenure.headless" -}}
{{- $port := index (include "tenure.ports" .root | fromJson) .name -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "tenure.component" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tenure.labels" . | nindent 4 }}
spec:
  # Headless: one gRPC connection lasts, so callers spread over the pods themselves (round robin).
  clusterIP: None
  selector: {{- include "tenure.selector" . | nindent 4 }}
  ports:
    - {name: grpc, port: {{ $port | int }}, targetPort: grpc, protocol: TCP, appProtocol: grpc}
    {{- if .root.Values.metrics.enabled }}
    - {name: metrics, port: 9100, targetPort: metrics, protocol: TCP}
    {{- end }}
{{- end -}}

{{- define "tenure.pdb" -}}
{{- if .root.Values.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "tenure.component" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tenure.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "tenure.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}
