#!/bin/sh
# Installs a C compiler and linker on a fresh Debian machine.
set -eu
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
echo "Installing a C compiler (package gcc) ..."
$as_root apt-get update -q
$as_root apt-get install -y -q --no-install-recommends gcc libc6-dev
