#!/bin/sh
# Fetches the Prometheus server into .tools/bin/prometheus; only scripts/dashboards.sh needs it.
#
# What is there is left alone. It comes as Debian's package, unpacked and not installed: no service is started and nothing listens.
# The pinned version is checked against the sum below. Where the package lists have another one (Debian replaces it with each
# security update), that one is taken, which apt checks against the signed lists.
set -eu
umask 022

VERSION=2.42.0+ds-5+deb12u1
SHA256=81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/.tools
program=$tools/bin/prometheus
work=$tools/fetch.prometheus.$$

say() { printf 'tools: %s\n' "$*" >&2; }
fail() { printf 'tools: FAILED: %s\n' "$*" >&2; exit 1; }
starts() { [ -x "$1" ] && "$1" --version >/dev/null 2>&1; }

# download PACKAGE[=VERSION]: into $work
download() { (cd "$work" && apt-get download -q "$1") >>"$work/apt.log" 2>&1; }

# The pinned version, else the one of the lists.
fetch() {
    if download "prometheus=$VERSION"; then
        got=$(sha256sum "$work"/prometheus_*.deb | cut -d' ' -f1)
        # The sum is that of the build for this architecture.
        [ "$(dpkg --print-architecture)" != amd64 ] || [ "$got" = "$SHA256" ] ||
            fail "the package prometheus has sha256 $got, not $SHA256: it is not the file that was pinned"
        return 0
    fi
    download prometheus && say "Prometheus $VERSION cannot be had; taking the version of the package lists"
}

if starts "$program"; then exit 0; fi
command -v apt-get >/dev/null 2>&1 || fail 'Prometheus cannot be fetched: this is no Debian. Link the program to .tools/bin/prometheus and run this again'
mkdir -p "$work" "$tools/bin"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
say "fetching Prometheus (19 MB)"
fetch || {
    if [ "$(id -u)" = 0 ]; then
        say 'reading the package lists'
        apt-get update -qq >>"$work/apt.log" 2>&1 || say 'apt-get update failed; going on with the lists that are there'
    fi
    fetch || {
        tail -n 5 "$work/apt.log" >&2
        fail 'apt-get download prometheus (as root, apt-get update may help)'
    }
}
dpkg -x "$work"/prometheus_*.deb "$work/unpacked"
starts "$work/unpacked/usr/bin/prometheus" || fail 'Prometheus was fetched but does not run'
mv -f "$work/unpacked/usr/bin/prometheus" "$program"
say "$("$program" --version 2>&1 | head -n 1) is in .tools/bin"
