#!/bin/sh
# Checks the alert rules of the chart and runs their unit tests (*.test.yaml beside them), with the promtool in .tools/.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
promtool=$root/.tools/bin/promtool
alerts=$root/charts/holdfast/alerts

if [ ! -d "$alerts" ]; then
    echo 'no alert rules yet: charts/holdfast/alerts does not exist'
    exit 0
fi
[ -x "$promtool" ] || { echo 'promtool is missing; get it with: scripts/tools.sh promtool' >&2; exit 1; }

# A test names its rules relative to itself.
cd "$alerts"
for file in *.yaml; do
    [ -e "$file" ] || continue
    case $file in
    *.test.yaml) "$promtool" test rules "$file" ;;
    *) "$promtool" check rules "$file" ;;
    esac
done
