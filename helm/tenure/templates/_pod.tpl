{{/* What every pod of ours has: no root, no token, no writable root, no more than it needs. */}}

{{/* Call with (dict "uid" 10001). */}}
{{- define "tenure.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .uid }}
runAsGroup: {{ .uid }}
fsGroup: {{ .uid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "tenure.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Placement, for the values of one component. */}}
{{- define "tenure.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Addresses of neighbours, logging, tracing, TLS: the same in services and agents. */}}
{{- define "tenure.commonEnv" -}}
{{- $ports := include "tenure.ports" .root | fromJson -}}
{{- range index (include "tenure.calls" .root | fromJson) .name }}
- name: TENURE_{{ upper . }}_ADDRESS
  value: {{ printf "%s:%d" (include "tenure.component" (dict "root" $.root "name" .)) (index $ports . | int) | quote }}
{{- end }}
- name: TENURE_LOG_FORM
  value: json
- name: TENURE_LOG_LEVEL
  value: {{ .root.Values.logLevel }}
{{- with .root.Values.otlpEndpoint }}
- name: TENURE_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- if eq (include "tenure.tlsMode" .root) "none" }}
- name: TENURE_PLAINTEXT
  value: "1"
{{- else }}
{{- $folder := ternary "/run/tenure" "/run/tenure-tls" (eq .name "agent") }}
- name: TENURE_TLS_CERTIFICATE
  value: {{ $folder }}/tls.crt
- name: TENURE_TLS_PRIVATE_KEY
  value: {{ $folder }}/tls.key
- name: TENURE_TLS_AUTHORITY
  value: {{ $folder }}/ca.crt
{{- end }}
{{- end -}}

{{- define "tenure.settings" -}}
{{- range $name, $value := . }}
- name: TENURE_{{ upper $name }}
  value: {{ if kindIs "map" $value }}{{ $value | toJson | quote }}{{ else if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $value | int64 | toString | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end }}
{{- end -}}
