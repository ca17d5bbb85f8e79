#!/bin/sh
# Installs Debian packages that a make target needs: install.sh PACKAGE...
set -eu
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
echo "Installing $* ..."
$as_root apt-get update -q
$as_root apt-get install -y -q --no-install-recommends "$@"
