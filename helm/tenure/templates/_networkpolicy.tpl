{{/* Who may talk to whom, from "tenure.calls". */}}

{{- define "tenure.peer" -}}
podSelector:
  matchLabels: {{- include "tenure.selector" . | nindent 4 }}
{{- end -}}

{{- define "tenure.dnsEgress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{- define "tenure.callsEgress" -}}
{{- $ports := include "tenure.ports" .root | fromJson -}}
{{- range index (include "tenure.calls" .root | fromJson) .name }}
- to:
    - {{- include "tenure.peer" (dict "root" $.root "name" .) | nindent 6 }}
  ports:
    - {port: {{ index $ports . | int }}, protocol: TCP}
{{- end }}
{{- if .root.Values.otlpEndpoint }}
- ports:
    - {port: {{ .root.Values.networkPolicy.otlpPort }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* Call with (dict "root" $ "trial" "postgres" "use" bool "outside" peersAndPort "port" 5432). */}}
{{- define "tenure.storeEgress" -}}
{{- if .use }}
- to:
    - {{- include "tenure.peer" (dict "root" .root "name" .trial) | nindent 6 }}
  ports:
    - {port: {{ .port }}, protocol: TCP}
{{- else }}
- ports:
    - {port: {{ .outside.port }}, protocol: TCP}
  {{- with .outside.peers }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "tenure.servicePolicy" -}}
{{- if .root.Values.networkPolicy.enabled -}}
{{- $name := .name -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- $port := index (include "tenure.ports" .root | fromJson) .name | int -}}
{{- $callers := list -}}
{{- range $caller, $callees := include "tenure.calls" .root | fromJson -}}
{{- if and (has $name $callees) (or (ne $caller "agent") $.root.Values.agent.enabled) -}}{{- $callers = append $callers $caller -}}{{- end -}}
{{- end -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "tenure.component" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tenure.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "tenure.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- $scraped := and .root.Values.metrics.enabled $policy.metrics }}
  {{- /* Without any rule nobody may come in. */}}
  {{- if or $callers $policy.clients $scraped }}
  ingress:
    {{- if or $callers $policy.clients }}
    - ports:
        - {port: {{ $port }}, protocol: TCP}
      from:
        {{- range sortAlpha $callers }}
        - {{- include "tenure.peer" (dict "root" $.root "name" .) | nindent 10 }}
        {{- end }}
        {{- with $policy.clients }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- end }}
    {{- if $scraped }}
    - ports:
        - {port: 9100, protocol: TCP}
      from: {{- toYaml $policy.metrics | nindent 8 }}
    {{- end }}
  {{- end }}
  egress:
    {{- include "tenure.dnsEgress" . | nindent 4 }}
    {{- include "tenure.callsEgress" . | nindent 4 }}
    {{- $trial := and .root.Values.database.trial.enabled (not .root.Values.database.existingSecret) }}
    {{- include "tenure.storeEgress" (dict "root" .root "trial" "postgres" "use" $trial "outside" $policy.database "port" 5432) | nindent 4 }}
    {{- if and (include "tenure.elects" .) (include "tenure.etcdEndpoints" .root) }}
    {{- $trial := not .root.Values.etcd.endpoints }}
    {{- include "tenure.storeEgress" (dict "root" .root "trial" "etcd" "use" $trial "outside" $policy.etcd "port" 2379) | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}
