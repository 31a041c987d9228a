#!/bin/sh
# Checks the Helm chart: lints it, renders it over a matrix of values with helm 3 and helm 4, and looks at every document that comes out
# (charts/tests/chart.py). The programs are those in .tools/.
#
# Usage: scripts/chart.sh [FOLDER]     (the folder of the chart; without one charts/holdfast)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/.tools
chart=${1:-$root/charts/holdfast}
releases=1.30,1.35 # those whose schemas scripts/tools.sh keeps

for part in bin/helm3 bin/helm4 kubernetes-validate/version; do
    [ -e "$tools/$part" ] || { echo "$part is missing; get it with: scripts/tools.sh helm kubernetes-validate" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# Nothing of whoever runs this is read or changed, and no cluster is asked.
export HELM_CACHE_HOME="$work/cache" HELM_CONFIG_HOME="$work/config" HELM_DATA_HOME="$work/data" KUBECONFIG=/dev/null

for helm in helm3 helm4; do
    for values in "$chart"/values.yaml "$chart"/examples/*.yaml; do
        "$tools/bin/$helm" lint --strict --quiet "$chart" --values "$values" >"$work/lint" 2>&1 || {
            cat "$work/lint" >&2
            echo "chart: $helm lint refuses the chart with $(basename "$values")" >&2
            exit 1
        }
    done
done

PYTHONPATH="$tools/kubernetes-validate" PYTHONDONTWRITEBYTECODE=1 \
    python3 "$root/charts/tests/chart.py" "$chart" "$releases" "$tools/bin/helm3" "$tools/bin/helm4"
