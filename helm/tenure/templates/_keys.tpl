{{/* Keys as tenure_runtime.rpc.identity reads them: tnr_<name>_<secret>, and a keyring that has the
     SHA-256 of each secret. What the cluster has already is kept. */}}

{{/* Returns {"keys": {"<name>.key": key}, "ring": {"<name>": {"sha256": …, "roles": […]}}} as JSON.
     Call with (dict "root" $ "secret" name "roles" (dict name (list role…))). */}}
{{- define "tenure.makeKeys" -}}
{{- $stored := (lookup "v1" "Secret" .root.Release.Namespace .secret).data | default dict -}}
{{- $keys := dict -}}
{{- $ring := dict -}}
{{- range $name, $roles := .roles -}}
{{- if not (regexMatch "^[a-z0-9][a-z0-9.-]{0,62}$" $name) -}}
{{- fail (printf "a key's name is lower-case letters, digits, '.' and '-', at most 63, not %q" $name) -}}
{{- end -}}
{{- $file := printf "%s.key" $name -}}
{{- $key := printf "tnr_%s_%s" $name (randAlphaNum 43) -}}
{{- if hasKey $stored $file -}}{{- $key = index $stored $file | b64dec | trim -}}{{- end -}}
{{- $secret := trimPrefix (printf "tnr_%s_" $name) $key -}}
{{- $_ := set $keys $file $key -}}
{{- $_ := set $ring $name (dict "sha256" (sha256sum $secret) "roles" $roles) -}}
{{- end -}}
{{- dict "keys" $keys "ring" $ring | toJson -}}
{{- end -}}
