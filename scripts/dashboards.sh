#!/bin/sh
# Asks a real Prometheus for every panel of the dashboards, while it scrapes a service that works.
#
# Starts `holdfast dev` and Prometheus, each on free ports of loopback with its data in a folder of its own, submits jobs, waits until
# they have ended, and runs the queries of all panels, annotations and variables. Fails when a query is refused, when a variable has no
# value, when a legend names a label that its series do not have, and when a panel shows nothing that is not listed in MAY_BE_EMPTY.
# Whatever happens, it stops what it started.
#
# Usage: scripts/dashboards.sh [PROGRAM]     (no program: target/debug/holdfast, or what CARGO_TARGET_DIR says)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-${CARGO_TARGET_DIR:-$root/target}/debug/holdfast}
# Loopback needs no proxy, and the service wants no server of anybody else.
unset DATABASE_URL REDIS_URL RPC_URL HOLDFAST_CONFIG http_proxy HTTP_PROXY || true

fail() { printf 'dashboards: FAILED: %s\n' "$*" >&2; exit 1; }

[ -x "$program" ] || fail "$program is missing; get it with: cargo build --locked"
if ! command -v python3 >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || fail 'python3 is missing: sudo apt-get install -y --no-install-recommends python3'
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 >/dev/null 2>&1 || fail 'apt-get install python3'
fi
"$root/scripts/tools.sh" postgres redis anvil
"$root/scripts/prometheus_tool.sh"

# Replaces the shell, so that a signal reaches whoever has to stop the rest.
exec python3 - "$root" "$program" <<'PYTHON'
import glob, json, math, os, re, shutil, signal, socket, subprocess, sys, tempfile, time, urllib.error, urllib.parse, urllib.request

ROOT, PROGRAM = sys.argv[1:]
CHART = os.path.join(ROOT, "charts/holdfast")
JOBS = 40             # of each kind; more show nothing more
PATIENCE = 60         # seconds for everything to be up, and again for all jobs to end
RATE_INTERVAL = "1m"  # what Grafana makes of $__rate_interval with a scrape interval of 15 s
RANGE = "1h"

# What a service in which nothing fails does not have: counters that are born with their first event, because a label of theirs
# is not known before. Panel by dashboard and title; all else must show something.
MAY_BE_EMPTY = {
    ("lanes", "Nonces used by others, last hour"): "nobody else has the keys",
    ("lanes", "Gaps that were filled, last hour"): "no nonce was lost",
    ("lanes", "Leases that were lost, last hour"): "one process settles all lanes",
    ("lanes", "Ends undone too late, last hour"): "the chain undoes nothing",
    ("delivery", "Executions refused by their token"): "no execution was overtaken",
    ("delivery", "Lost locks"): "every lock is renewed",
    ("delivery", "Failed calls to Redis"): "Redis answers",
    ("delivery", "Actor restarts"): "no actor panics",
    ("delivery", "Folds: refused"): "the load is small",
    ("rpc", "Contradictions between endpoints"): "there is one endpoint",
    ("rpc", "Unknown errors"): "the node answers as it should",
    ("fees", "Times the limit was met, last hour"): "the price is that of an empty chain",
    ("fees", "Sent again"): "every transaction is mined from its first broadcast",
}

started, folder = [], None


class Failed(Exception):
    pass


def stop(*_):
    # From here on nothing interrupts the stopping.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for process in reversed(started):
        if process.poll() is None:
            process.terminate()
    for process in reversed(started):
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def interrupted(number, _):
    raise SystemExit(128 + number)


def say(text):
    print(f"dashboards: {text}", flush=True)


def start(name, *command):
    # What dev says when it is ready has keys in it.
    private = lambda path, flags: os.open(path, flags, 0o600)
    log = open(os.path.join(folder, f"{name}.log"), "wb", opener=private)
    out = open(os.path.join(folder, f"{name}.out"), "wb", opener=private)
    # Its own group: a Ctrl-C comes to this script alone, which stops the others in their order.
    started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=folder, start_new_session=True))
    return started[-1]


def tail(name):
    with open(os.path.join(folder, f"{name}.log"), errors="replace") as log:
        return "".join(log.readlines()[-8:])


def wait(what, name, process, found):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Failed(f"{name} ended with {process.returncode} before {what}\n{tail(name)}")
        answer = found()
        if answer:
            return answer
        time.sleep(0.2)
    raise Failed(f"waited {PATIENCE} s for {what}\n{tail(name)}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def http(url, body=None, headers=None):
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()
    except OSError as error:
        return 0, str(error)


def start_service():
    dev = start("dev", PROGRAM, "dev", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", os.path.join(folder, "data"), "--output", "json")

    def ready():
        with open(os.path.join(folder, "dev.out")) as out:
            line = out.readline()
        return json.loads(line) if line.endswith("\n") else None

    return wait("it was ready", "dev", dev, ready), dev


def start_prometheus(target):
    for _ in range(3):  # another program may take the port between the look and the start
        address = f"127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [os.path.join(CHART, "alerts/holdfast.rules.yaml")],
            "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": [target]}]}],
        }
        path = os.path.join(folder, "prometheus.json")  # all JSON is YAML
        with open(path, "w") as file:
            json.dump(config, file)
        process = start("prometheus", os.path.join(ROOT, ".tools/bin/prometheus"), f"--config.file={path}",
                        f"--storage.tsdb.path={os.path.join(folder, 'tsdb')}", f"--web.listen-address={address}")
        try:
            wait("it was ready", "prometheus", process, lambda: http(f"http://{address}/-/ready")[0] == 200)
            return f"http://{address}/api/v1", process
        except Failed:
            if "address already in use" not in tail("prometheus"):
                raise
    raise Failed("no free port for Prometheus")


def ask(api, path, **parameters):
    _, text = http(f"{api}/{path}?{urllib.parse.urlencode(parameters)}")
    try:
        answer = json.loads(text)
    except ValueError:
        raise Failed(f"Prometheus said no JSON: {text[:200]}")
    if answer["status"] != "success":
        raise Failed(answer["error"])
    return answer["data"]


def submit(service, run):
    key = {"authorization": f"Bearer {service['api_key']}"}
    common = {"chain_id": service["chain_id"], "pool": service["pool"]}
    jobs = [{"kind": "contract_call", "to": service["recorder"], "function": "record(bytes32)", "args": [f"0x{run:032x}{n:032x}"], **common} for n in range(JOBS)]
    jobs += [{"kind": "transfer", "to": service["signers"][0], "value": "1", **common} for _ in range(JOBS)]
    for number, job in enumerate(jobs):
        job["idempotency_key"] = f"{run}-{number}"
    for attempt in ("new", "the same again"):
        status, text = http(f"{service['http']}/v1/jobs/batch", {"jobs": jobs}, key)
        if status != 200 or any(item["status"] not in (200, 202) for item in json.loads(text)["results"]):
            raise Failed(f"the service answered {status} to jobs, {attempt}: {text[:300]}")
    http(f"{service['http']}/v1/jobs?limit=1", None, key)
    http(f"{service['http']}/v1/jobs?limit=1")


def panels(board):
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def with_variables(text, values):
    for name, value in values.items():
        text = re.sub(r"\$(?:%s\b|\{%s(?::\w+)?\})" % (name, name), lambda _: value, text)
    if "$" in text.replace("$\"", ""):
        raise Failed(f"an unknown variable in {text}")
    return text


def variables(api, board):
    """What Grafana puts in for each variable when all of its values are chosen one by one."""
    values = {"__rate_interval": RATE_INTERVAL, "__range": RANGE}
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        found = ask(api, f"label/{label}/values", **{"match[]": with_variables(selector, values)})
        if not found:
            raise Failed(f"the variable {variable['name']} has no value")
        # Grafana escapes for the expression, and once more for the quotes around it.
        values[variable["name"]] = "(" + "|".join(re.sub(r"([.*+?^${}()|\[\]\\/])", r"\\\\\1", value) for value in found) + ")"
    return values


def result(api, target, values, since):
    query = with_variables(target["expr"], values)
    if target["instant"]:
        return [(series["metric"], [series["value"]]) for series in ask(api, "query", query=query)["result"]]
    data = ask(api, "query_range", query=query, start=since, end=time.time(), step=1)
    return [(series["metric"], series["values"]) for series in data["result"]]


def check(api, name, board, since):
    """How many queries were run; the faults; the panels that are empty."""
    faults, empty, count = [], [], 0
    try:
        values = variables(api, board)
    except Failed as failed:
        return 0, [f"{name}: {failed}"], []
    for annotation in board["annotations"]["list"]:
        count += 1
        try:
            ask(api, "query", query=with_variables(annotation["expr"], values))
        except Failed as failed:
            faults.append(f"{name}, annotation {annotation['name']}: {failed}")
    for panel in panels(board):
        for target in panel["targets"]:
            count += 1
            where = f"{name}, {panel['title']}, {target['refId']}"
            try:
                found = result(api, target, values, since)
            except Failed as failed:
                faults.append(f"{where}: {failed}")
                continue
            # A quantile of nothing is NaN, of which Grafana draws nothing.
            if not any(math.isfinite(float(value)) for _, points in found for _, value in points):
                empty.append((name, panel["title"], where))
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            lacking = {label for labels, _ in found for label in legend - set(labels)}
            # An empty label is none, and the one task has it so.
            if lacking - {"of"}:
                faults.append(f"{where}: its series have no label {', '.join(sorted(lacking))}, which the legend names")
    return count, faults, empty


def main():
    boards = {os.path.basename(path)[:-5]: json.load(open(path)) for path in sorted(glob.glob(os.path.join(CHART, "dashboards/*.json")))}
    for name, title in MAY_BE_EMPTY:
        if not any(panel["title"] == title for panel in panels(boards.get(name, {"panels": []}))):
            raise Failed(f"MAY_BE_EMPTY names {name}, {title}, which is no panel")
    began = time.monotonic()
    say("starting the service")
    service, dev = start_service()
    since = time.time()
    api, prometheus = start_prometheus(urllib.parse.urlsplit(service["admin"]).netloc)
    number = lambda query: float(next((series["value"][1] for series in ask(api, "query", query=query)["result"]), 0))
    wait("Prometheus had scraped the service", "prometheus", prometheus, lambda: number("count_over_time(holdfast_readiness{check=\"postgres\"}[1m])") >= 3)
    say(f"submitting {2 * JOBS} jobs, and again after they have ended")
    # Twice, and apart: what is told by a difference of two looks needs both.
    for run in (1, 2):
        submit(service, run)
        wait("all jobs to end", "dev", dev, lambda: number('sum(holdfast_jobs_finished_total{state="completed"})') >= 2 * JOBS * run)
    # Samples of histograms come to their buckets every 5 s, balances are asked for every few seconds, and rules come after scrapes.
    spent = "sum(holdfast_signer_balance_native) < sum(max_over_time(holdfast_signer_balance_native[5m]))"
    wait("the balances to fall", "dev", dev, lambda: number(f"count({spent})") > 0)
    time.sleep(7)
    count, faults, empty = 0, [], []
    for name, board in boards.items():
        asked, wrong, without = check(api, name, board, since)
        count, faults, empty = count + asked, faults + wrong, empty + without
    for name, title, where in empty:
        if (name, title) not in MAY_BE_EMPTY:
            faults.append(f"{where}: shows nothing, although there is traffic")
    excused = {(name, title) for name, title, _ in empty} & set(MAY_BE_EMPTY)
    for fault in faults:
        print(f"dashboards: {fault}", file=sys.stderr)
    total = sum(len(list(panels(board))) for board in boards.values())
    say(f"{len(boards)} dashboards, {total} panels, {count} queries: {len(faults)} faults, {len(excused)} panels empty for a reason, {time.monotonic() - began:.0f} s")
    if faults or not count:
        raise Failed(f"{len(faults)} faults" if faults else "nothing was asked")


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, interrupted)
folder = tempfile.mkdtemp(prefix="holdfast-dashboards-")
os.chmod(folder, 0o711)  # Postgres does not run as root; its user has to come through
try:
    main()
except Failed as failed:
    sys.exit(f"dashboards: FAILED: {failed}")
finally:
    stop()
PYTHON
