{{/* Certificates: one for each caller, with its name in it (docs/security.md). They are renewed in
     their Secret, and processes read them again without a restart. */}}

{{/* existing, certManager, helm, or none. Call with $. */}}
{{- define "tenure.tlsMode" -}}
{{- if .Values.tls.existingSecret -}}
existing
{{- else if .Values.tls.certManager.issuer -}}
certManager
{{- else if .Values.tls.plaintext -}}
none
{{- else if and .Values.keys.create (not .Values.keys.existingSecret) -}}
helm
{{- else if include "tenure.keysSecret" . -}}
{{- fail "say how callers show who they are: tls.existingSecret names a Secret with their certificates (helm/make_keys.py makes them), tls.certManager.issuer an issuer, or tls.plaintext=true does without" -}}
{{- end -}}
{{- end -}}

{{- define "tenure.tlsSecret" -}}
{{- default (printf "%s-tls" (include "tenure.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{- define "tenure.agentTlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{- required "tls.agentSecret names a Secret with authority.pem, and <node>.crt and <node>.key for each node that gets an agent" .Values.tls.agentSecret -}}
{{- else -}}
{{- printf "%s-agent-tls" (include "tenure.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* Where one service is called: its Service, and from a port-forward. As JSON. */}}
{{- define "tenure.tlsNames" -}}
{{- $name := include "tenure.component" . -}}
{{- $ns := .root.Release.Namespace -}}
{{- list $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) "localhost" | toJson -}}
{{- end -}}

{{/* The volume with the certificate of one service. */}}
{{- define "tenure.tlsVolume" -}}
- name: tls
  secret:
    {{- if eq (include "tenure.tlsMode" .root) "certManager" }}
    secretName: {{ include "tenure.component" . }}-tls
    {{- else }}
    secretName: {{ include "tenure.tlsSecret" .root }}
    items: [{key: authority.pem, path: ca.crt}, {key: {{ .name }}.crt, path: tls.crt}, {key: {{ .name }}.key, path: tls.key}]
    {{- end }}
    defaultMode: 0440
{{- end -}}

{{/* The volume with the certificates of all agents, for the containers that pick one. */}}
{{- define "tenure.agentTlsVolume" -}}
- name: certificates
  {{- if eq (include "tenure.tlsMode" .) "certManager" }}
  projected:
    defaultMode: 0440
    sources:
      {{- range $index, $node := .Values.agent.nodes }}
      - secret:
          name: {{ include "tenure.component" (dict "root" $ "name" "agent") }}-{{ $node }}-tls
          optional: true
          items: [{key: tls.crt, path: {{ $node }}.crt}, {key: tls.key, path: {{ $node }}.key}{{ if eq $index 0 }}, {key: ca.crt, path: authority.pem}{{ end }}]
      {{- end }}
  {{- else }}
  secret: {secretName: {{ include "tenure.agentTlsSecret" . }}, defaultMode: 0440}
  {{- end }}
{{- end -}}

{{/* Shell: copies this node's certificate to where the agent reads it, if it is another one. */}}
{{- define "tenure.takeCertificate" -}}
take() { cmp -s "/run/tenure-certificates/$1" "/run/tenure/$2" || install -m 0600 "/run/tenure-certificates/$1" "/run/tenure/$2"; }
take_all() { take authority.pem ca.crt && take "$NODE.key" tls.key && take "$NODE.crt" tls.crt; }
{{- end -}}

{{/* A certificate signed by Helm. Its tool writes no URIs, so the caller's name is a DNS name.
     Call with (dict "ca" … "name" … "role" … "names" (list …)); returns {"crt": …, "key": …}. */}}
{{- define "tenure.signed" -}}
{{- $id := printf "%s.%s.id.tenure" .name .role -}}
{{- $ips := ternary (list "127.0.0.1") (list) (eq .role "service") -}}
{{- $made := genSignedCertWithKey .name $ips (prepend .names $id) 365 .ca (genPrivateKey "ecdsa") -}}
{{- dict "crt" $made.Cert "key" $made.Key | toJson -}}
{{- end -}}
