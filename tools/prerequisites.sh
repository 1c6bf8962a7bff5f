#!/usr/bin/env bash
# Names what is missing on this machine, with the command that brings it; says nothing else.
set -u
python="${1:-python3}"
missing=0
lack() { missing=1; printf 'Tenure needs %s. On Debian: %s\n' "$1" "$2" >&2; }

if ! command -v "$python" >/dev/null 2>&1; then
  lack "Python 3.11 or newer (tried '$python')" "apt-get install python3 python3-venv"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  lack "Python 3.11 or newer; '$python' is $("$python" -V 2>&1)" \
    "apt-get install python3.11 python3.11-venv, then make PYTHON=python3.11"
elif ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
  lack "Python's venv module" "apt-get install python3-venv"
fi
exit "$missing"
