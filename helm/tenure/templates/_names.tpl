{{/* Names, labels and small facts that all templates share. */}}

{{- define "tenure.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Call with (dict "root" $ "name" "admission"). */}}
{{- define "tenure.component" -}}
{{- printf "%s-%s" (include "tenure.fullname" .root) .name -}}
{{- end -}}

{{- define "tenure.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "tenure.labels" -}}
{{ include "tenure.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tenure.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "tenure.serviceAccount" -}}
{{- default (include "tenure.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Ports are ours to choose: each service has a pod of its own. */}}
{{- define "tenure.ports" -}}
{"admission": 7001, "slottable": 7002, "scheduler": 7003, "registry": 7004, "autoscaler": 7005}
{{- end -}}

{{/* The name under which gRPC health answers for the service. */}}
{{- define "tenure.health" -}}
{"admission": "tenure.admission.v1.AdmissionService", "slottable": "tenure.slottable.v1.SlotTableService",
 "scheduler": "tenure.scheduler.v1.SchedulerService", "registry": "tenure.registry.v1.RegistryService",
 "autoscaler": "tenure.autoscaler.v1.AutoscalerService"}
{{- end -}}

{{/* Who calls whom: each has TENURE_<NEIGHBOUR>_ADDRESS for those, and may reach only those. */}}
{{- define "tenure.calls" -}}
{"admission": ["slottable", "scheduler"], "slottable": ["admission"], "registry": ["admission"],
 "scheduler": ["admission", "slottable", "registry"],
 "autoscaler": ["admission", "registry", "scheduler", "slottable"], "agent": ["registry"]}
{{- end -}}

{{/* Says yes for services that hold elections. */}}
{{- define "tenure.elects" -}}
{{- if has .name (list "scheduler" "autoscaler") -}}yes{{- end -}}
{{- end -}}

{{- define "tenure.databaseSecret" -}}
{{- if .Values.database.existingSecret -}}
{{- .Values.database.existingSecret -}}
{{- else if .Values.database.trial.enabled -}}
{{- printf "%s-postgres" (include "tenure.fullname" .) -}}
{{- else -}}
{{- fail "say where PostgreSQL is: database.existingSecret names a Secret with a DSN, or database.trial.enabled=true starts a small one for a trial" -}}
{{- end -}}
{{- end -}}

{{- define "tenure.databaseKey" -}}
{{- if .Values.database.existingSecret -}}{{ .Values.database.key }}{{- else -}}dsn{{- end -}}
{{- end -}}

{{- define "tenure.keysSecret" -}}
{{- if .Values.keys.existingSecret -}}
{{- .Values.keys.existingSecret -}}
{{- else if .Values.keys.create -}}
{{- printf "%s-keys" (include "tenure.fullname" .) -}}
{{- else -}}
{{- fail "say who may call: keys.existingSecret names a Secret with keyring.json and the services' keys (helm/make_keys.py makes them), or keys.create=true lets Helm make them" -}}
{{- end -}}
{{- end -}}

{{- define "tenure.agentKeysSecret" -}}
{{- if .Values.keys.agentSecret -}}
{{- .Values.keys.agentSecret -}}
{{- else if .Values.keys.create -}}
{{- printf "%s-agent-keys" (include "tenure.fullname" .) -}}
{{- else -}}
{{- fail "say how agents show who they are: keys.agentSecret names a Secret with <node name>.key, or set agent.enabled=false" -}}
{{- end -}}
{{- end -}}

{{- define "tenure.etcdEndpoints" -}}
{{- if .Values.etcd.endpoints -}}
{{- .Values.etcd.endpoints -}}
{{- else if .Values.etcd.trial.enabled -}}
{{- printf "%s-etcd:2379" (include "tenure.fullname" .) -}}
{{- end -}}
{{- end -}}
