"""Renders the chart over a matrix of values with every helm that is given, and says what is wrong with what comes out.

Called by scripts/chart.sh, which finds the programs. What is checked here and not by a schema: no secret is written out anywhere, each role
has the references that are its own, roles and variables are those of the program, and what watches the service is what alerts/ and dashboards/ hold.
"""

import concurrent.futures
import copy
import functools
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = pathlib.Path(sys.argv[1]).resolve()
RELEASES = sys.argv[2].split(",")
HELMS = sys.argv[3:]
NAMESPACE = "somewhere"

KEYS = {"SIGNER_KEYS", "SIGNER_REMOTE_URLS", "TX_JOURNAL_KEYS"}
# What the chart sets itself; the rest of the settings that are no secrets may be given.
SET_BY_THE_CHART = {
    "HOLDFAST_ROLE", "INSTANCE_ID", "INFRASTRUCTURE_REQUIRED", "SHUTDOWN_DEADLINE_SECONDS", "OPERATOR_ID",
    "HTTP_LISTEN", "ADMIN_LISTEN", "TX_JOURNAL_ACTIVE_KEY_ID",
}  # fmt: skip
# No schema of Kubernetes knows these; the fields that are used are checked here.
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
LITERAL = re.compile(r"(?<!sha256:)\b(0x)?[0-9a-fA-F]{64}\b|://[^/\s]*:[^/\s]*@|-----BEGIN|holdfast_[A-Za-z0-9]+_[A-Za-z0-9]+_[A-Za-z0-9]{30,}")

KEY = "0x" + "1f" * 32
REFERENCE = {"existingSecret": "somewhere-else", "key": "KEY"}


def load(path):
    return yaml.load(path.read_text(), yaml.CSafeLoader)


def put(values, path, value):
    """A copy of nested values with one of them set."""
    values = copy.deepcopy(values)
    *way, last = path.split(".")
    inner = values
    for step in way:
        inner = inner.setdefault(step, {})
    inner[last] = value
    return values


def switches(values, path=""):
    for key, value in values.items():
        if isinstance(value, bool):
            yield path + key, value
        elif isinstance(value, dict):
            yield from switches(value, f"{path}{key}.")


def settings_of_the_program():
    """Names of config.toml, and which of them are secrets."""
    found = {}
    for line in (ROOT / "config.toml").read_text().splitlines():
        listed = re.search(r"\[([^\[\]]*)\]\s*$", line)
        if listed and not line.startswith(("#", "[")):
            for name in map(str.strip, listed[1].split(",")):
                if re.fullmatch("[A-Z0-9_]+", name):
                    found[name] = "# secret:" in line
    return found


def roles_of_the_program():
    text = (ROOT / "src/config/service.rs").read_text()
    words = re.search(r"WORDS[^=]*=\s*\[(.*?)\];", text, re.S)
    return set(re.findall(r'"([a-z]+)"', words[1]))


def accepted():
    """The matrix: every example, and each switch of values.yaml the other way and back over the fullest and the smallest of them."""
    examples = {path.stem: load(path) for path in sorted((CHART / "examples").glob("*.yaml"))}
    cases = {name: values for name, values in examples.items()}
    cases["nothing set"] = {}
    for base, (path, default) in itertools.product(["minimal", "production"], switches(load(CHART / "values.yaml"))):
        for value in (True, False):
            cases[f"{base}, {path} {str(value).lower()}"] = put(examples[base], path, value)
    minimal = examples["minimal"]
    role = minimal["signing"]["relayer"]
    remote = {**role, "secrets": {"signerRemoteUrls": REFERENCE, "journalKeys": REFERENCE}}
    more = {
        "several chains": put(put(minimal, "secrets.configFile", REFERENCE), "settings", {}),
        "remote signers": put(minimal, "signing", {"treasury": remote}),
        "one replica": put(put(minimal, "signingDefaults.replicas", 1), "engine.replicas", 1),
        "IPv6": put(minimal, "listenHost", "[::]"),
        "nobody on the admin port": put(minimal, "networkPolicy.monitoring", []),
        "zero and false are settings": put(put(minimal, "settings", {"TX_LANE_WIDTH": 16}), "signing.relayer.settings", {"TX_LANE_WIDTH": 0}),
        "large numbers": put(minimal, "settings.TX_MAX_FEE_PER_GAS_WEI", 500000000000),
        "a membership call": put(minimal, "settings.TX_SIGNER_MEMBERSHIP", f"0x{'ab' * 20}/0x91d14854{'0c' * 32}{{signer}}"),
        "a long name": put(minimal, "fullnameOverride", "a-name-that-is-much-longer-than-anybody-should-give"),
        "own identities": put(minimal, "serviceAccount.annotations", {"example.com/role": "holdfast"}),
        "argo": put(put(minimal, "migration.useHelmHooks", False), "migration.annotations", {"argocd.argoproj.io/hook": "PreSync"}),
    }
    return {**cases, **more}


def refused():
    """Values that must not be taken, with a part of what has to be said."""
    minimal = load(CHART / "examples/minimal.yaml")
    pools = load(CHART / "examples/pools.yaml")
    relayer = "signing.relayer."
    unsigned = copy.deepcopy(minimal)
    del unsigned["signing"]["relayer"]["secrets"]["signerKeys"]
    unjournaled = copy.deepcopy(minimal)
    del unjournaled["signing"]["relayer"]["secrets"]["journalKeys"]
    return {
        "a URL instead of a reference": (put(minimal, "secrets.databaseUrl", "postgres://holdfast:word@db/holdfast"), "databaseUrl"),
        "a URL as the name of a Secret": (put(minimal, "secrets.databaseUrl.existingSecret", "postgres://holdfast:word@db/h"), "existingSecret"),
        "a key as the name of a Secret": (put(minimal, relayer + "secrets.signerKeys.existingSecret", KEY), "existingSecret"),
        "a key in the place of a key's name": (put(minimal, relayer + "secrets.signerKeys.key", KEY), "key"),
        "a key as an identity": (put(pools, "signing.guardian.pool.identities", [KEY, KEY[:-1] + "0"]), "identities"),
        "a URL as the id of a key": (put(minimal, relayer + "journalActiveKeyId", "postgres://holdfast:word@db/h"), "journalActiveKeyId"),
        "an API key as an annotation": (put(minimal, "engine.podAnnotations", {"note": "holdfast_live_ab12cd34ef_" + "A1" * 24}), "note"),
        "a value beside a reference": (put(minimal, "secrets.redisUrl.value", "redis://cache"), "value"),
        "keys written out": (put(minimal, relayer + "secrets.signerKeys", {"production:relayer": [KEY]}), "signerKeys"),
        "a secret among the settings": (put(minimal, "settings.SIGNER_KEYS", "{}"), "SIGNER_KEYS"),
        "a secret's file among the settings": (put(minimal, "settings.DATABASE_URL_FILE", "/tmp/url"), "DATABASE_URL_FILE"),
        "a key as a setting": (put(minimal, "settings.QUEUE_PREFIX", KEY), "QUEUE_PREFIX"),
        "a URL with a password as a setting": (put(minimal, "settings.QUEUE_PREFIX", "redis://u:p@cache"), "QUEUE_PREFIX"),
        "a key as an annotation": (put(minimal, "engine.podAnnotations", {"note": KEY}), "note"),
        "an unknown key": (put(minimal, "replicaCount", 2), "replicaCount"),
        "an unknown key of a role": (put(minimal, relayer + "replica", 2), "replica"),
        "an unknown setting": (put(minimal, "settings.TX_CONFIRMATION", 2), "TX_CONFIRMATION"),
        "keys of signers for the engine": (put(minimal, "engine.secrets.signerKeys", REFERENCE), "signerKeys"),
        "keys of the journal for the engine": (put(minimal, "engine.secrets.journalKeys", REFERENCE), "journalKeys"),
        "keys of signers for everybody": (put(minimal, "secrets.signerKeys", REFERENCE), "signerKeys"),
        "no engine": (put(minimal, "engine.replicas", 0), "replicas"),
        "no replica of a role": (put(minimal, relayer + "replicas", 0), "replicas"),
        "no replica of any role": (put(minimal, "signingDefaults.replicas", 0), "replicas"),
        "replicas in words": (put(minimal, relayer + "replicas", "two"), "replicas"),
        "a role that spreads nowhere": (put(minimal, relayer + "topologySpread", []), "topologySpread"),
        "a role without keys": (unsigned, "signerKeys"),
        "a role without a journal": (unjournaled, "journalKeys"),
        "a role without an active key": (put(minimal, relayer + "journalActiveKeyId", ""), "journalActiveKeyId"),
        "a pool without an environment": (put(minimal, relayer + "pool.name", "relayer"), "name"),
        "a role of another part's name": (put(minimal, "signing.engine", minimal["signing"]["relayer"]), "signing.engine"),
        "a grace that is too short": (put(minimal, relayer + "terminationGracePeriodSeconds", 60), "terminationGracePeriodSeconds"),
        "no database": (put(minimal, "secrets.databaseUrl.existingSecret", ""), "databaseUrl"),
        "the owner's login for a process": (put(minimal, "secrets.databaseUrl.existingSecret", "holdfast-migration"), "owner of the schema"),
        "one identity in a pool of two": (put(pools, "signing.guardian.pool.identities", ["0x" + "50" * 20]), "exactly 2"),
        "three identities in a pool of two": (put(pools, "signing.guardian.pool.identities", ["0x" + c * 40 for c in "789"]), "exactly 2"),
        "an identity in two pools": (
            put(pools, "signing.guardian.pool.identities", pools["signing"]["relayer"]["pool"]["identities"]),
            "belongs to one pool",
        ),
    }


def render(helm, values, folder):
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=folder) as file:
        json.dump(values, file)
        file.flush()
        line = [helm, "template", "rel", str(CHART), "--namespace", NAMESPACE, "--values", file.name]
        return subprocess.run(line, capture_output=True, text=True)


@functools.cache
def against_schemas(text):
    """What the schemas of Kubernetes say of one document; many cases share most of theirs."""
    document = json.loads(text)
    if document["kind"] in CUSTOM:
        return []
    wrong = []
    for release in RELEASES:
        try:
            kubernetes_validate.validate(document, release, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            place = ".".join(map(str, getattr(error, "path", [])))
            wrong.append(f"Kubernetes {release}: {place}: {error.message}")
    return wrong


def texts(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def matches(selector, labels):
    wanted = (selector.get("matchLabels") or {}).items() <= labels.items()
    return wanted and all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions") or [])


class Case:
    """What one rendering holds, and everything that is wrong with it."""

    def __init__(self, values, documents, settings, roles):
        self.values, self.documents, self.settings, self.roles = values, documents, settings, roles
        self.wrong = []
        self.pods = {}
        for document in documents:
            if document["kind"] in ("Deployment", "Job"):
                self.pods[self.name(document)] = (document["spec"]["template"]["metadata"]["labels"], document["spec"]["template"]["spec"])
            elif document["kind"] == "Pod":
                self.pods[self.name(document)] = (document["metadata"]["labels"], document["spec"])

    @staticmethod
    def name(document):
        return f"{document['kind']} {document['metadata']['name']}"

    def of(self, kind):
        return [document for document in self.documents if document["kind"] == kind]

    def need(self, holds, text):
        if not holds:
            self.wrong.append(text)

    def check(self):
        names = [self.name(document) for document in self.documents]
        self.need(len(names) == len(set(names)), f"a name is used twice: {sorted(names)}")
        for document in self.documents:
            name = self.name(document)
            self.need(len(document["metadata"]["name"]) <= 63, f"{name}: longer than 63 characters")
            self.wrong += [f"{name}: {text}" for text in against_schemas(json.dumps(document, sort_keys=True))]
            self.need(document["kind"] != "Secret", f"{name}: the chart makes no Secrets")
            self.wrong += [f"{name}: a secret is written out ({text[:6]}…)" for text in texts(document) if LITERAL.search(text)]
        for name, (labels, pod) in self.pods.items():
            self.check_pod(name, labels, pod)
        for deployment in self.of("Deployment"):
            self.check_deployment(deployment)
        self.check_migration()
        self.check_services()
        self.check_policies()
        self.check_monitoring()
        return self.wrong

    def secrets_of(self, pod):
        for volume in pod.get("volumes", []):
            for source in volume["projected"]["sources"]:
                for item in source["secret"]["items"]:
                    yield item["path"], source["secret"]["name"]

    def check_pod(self, name, labels, pod):
        accounts = {document["metadata"]["name"]: document for document in self.of("ServiceAccount")}
        account = accounts.get(pod.get("serviceAccountName"))
        self.need(account and account.get("automountServiceAccountToken") is False, f"{name}: no ServiceAccount of its own without a token")
        self.need(pod.get("automountServiceAccountToken") is False, f"{name}: a token is mounted")
        security = pod.get("securityContext", {})
        self.need(security.get("runAsNonRoot") is True and security.get("runAsUser", 0) > 0, f"{name}: may run as root")
        self.need(security.get("seccompProfile") == {"type": "RuntimeDefault"}, f"{name}: no seccomp profile")
        mounted = dict(self.secrets_of(pod))
        for container in pod["containers"]:
            security = container.get("securityContext", {})
            self.need(security.get("readOnlyRootFilesystem") is True, f"{name}: its root can be written")
            self.need(security.get("allowPrivilegeEscalation") is False, f"{name}: privileges can grow")
            self.need(security.get("capabilities") == {"drop": ["ALL"]}, f"{name}: keeps capabilities")
            resources = container.get("resources", {})
            self.need(resources.get("requests") and resources.get("limits", {}).get("memory"), f"{name}: no resources")
            self.need("envFrom" not in container, f"{name}: takes whole Secrets into its environment")
            self.need("command" not in container, f"{name}: does not run the image's program")
            names = [variable["name"] for variable in container["env"]]
            self.need(len(names) == len(set(names)), f"{name}: a variable is set twice: {names}")
            for variable in container["env"]:
                key = variable["name"]
                plain = key.removesuffix("_FILE")
                known = key == "HOLDFAST_CONFIG" or self.settings.get(key) is False or (key != plain and self.settings.get(plain) is True)
                self.need(known, f"{name}: {key} is no variable of the program, or a secret that is not given by its file")
                if key == "HOLDFAST_CONFIG" or key != plain:
                    self.need(variable.get("value") == f"/run/secrets/holdfast/{plain}", f"{name}: {key} is not the file of a reference")
                    self.need(plain in mounted, f"{name}: {key} names a file that no Secret gives")
            self.need(set(mounted) == {n.removesuffix("_FILE") for n in names if n.endswith("_FILE") or n == "HOLDFAST_CONFIG"}, f"{name}: mounts more or less than it reads")
        workload = labels["holdfast/workload"]
        text = json.dumps(pod)
        if workload != "signing":
            self.wrong += [f"{name}: mentions {key}" for key in KEYS if key in text]
            keys = {secret for _, other in self.pods.values() for path, secret in self.secrets_of(other) if path in KEYS}
            shared = keys & set(mounted.values()) - {"somewhere-else"}
            self.need(not shared, f"{name}: reads a Secret that holds keys: {shared}")
        else:
            self.need("TX_JOURNAL_KEYS" in mounted and {"SIGNER_KEYS", "SIGNER_REMOTE_URLS"} & set(mounted), f"{name}: signs without keys")
        if workload != "migration":
            self.need("DATABASE_MIGRATION_URL" not in text, f"{name}: mentions DATABASE_MIGRATION_URL")
            owner = self.merged("migration.secrets.databaseMigrationUrl.existingSecret")
            self.need(owner not in mounted.values(), f"{name}: reads the Secret of the owner of the schema")

    def merged(self, path):
        def look(values):
            for step in path.split("."):
                values = values.get(step) if isinstance(values, dict) else None
            return values

        found = look(self.values)
        return look(load(CHART / "values.yaml")) if found is None else found

    def check_deployment(self, deployment):
        name, spec = self.name(deployment), deployment["spec"]
        labels, pod = self.pods[name]
        self.need(matches(spec["selector"], labels), f"{name}: does not select its own pods")
        (container,) = pod["containers"]
        role = "engine" if labels["holdfast/workload"] == "engine" else "relayer"
        self.need(container["args"] == ["serve", "--role", role] and role in self.roles, f"{name}: {container['args']}")
        for probe, path in [("startupProbe", "/startupz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/livez")]:
            self.need(container.get(probe, {}).get("httpGet") == {"path": path, "port": "admin"}, f"{name}: {probe} does not ask {path}")
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        wait = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        drain = int(environment["SHUTDOWN_DEADLINE_SECONDS"])
        self.need(pod["terminationGracePeriodSeconds"] > wait + drain, f"{name}: is killed before it has drained")
        self.need(environment["INFRASTRUCTURE_REQUIRED"] == "true", f"{name}: may fall back on an embedded default")
        self.need(spec["replicas"] >= 1, f"{name}: no replica")
        spread = pod.get("topologySpreadConstraints") or []
        self.need(any(rule["topologyKey"] == "kubernetes.io/hostname" for rule in spread), f"{name}: is not spread over hosts")
        self.need(all(matches(rule["labelSelector"], labels) for rule in spread), f"{name}: spreads other pods than its own")
        others = [other for other, (pods, _) in self.pods.items() if other != name and matches(spec["selector"], pods)]
        self.need(not others, f"{name}: also selects {others}")
        budgets = [budget for budget in self.of("PodDisruptionBudget") if matches(budget["spec"]["selector"], labels)]
        wanted = 1 if self.merged("podDisruptionBudget.enabled") and spec["replicas"] > 1 else 0
        self.need(len(budgets) == wanted, f"{name}: {len(budgets)} budgets where {wanted} is right")
        for budget in budgets:
            rule = budget["spec"]
            self.need(rule.get("minAvailable") == 1 and rule.get("unhealthyPodEvictionPolicy") == "AlwaysAllow", f"{name}: budget {rule}")
        self.need(spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}, f"{name}: strategy")

    def check_migration(self):
        jobs = self.of("Job")
        self.need(len(jobs) == (1 if self.merged("migration.enabled") else 0), f"{len(jobs)} migration Jobs")
        hooks = self.merged("migration.useHelmHooks")
        for job in jobs:
            name, pod = self.name(job), job["spec"]["template"]["spec"]
            self.need(pod["containers"][0]["args"][:2] == ["db", "migrate"], f"{name}: migrates nothing")
            self.need(job["spec"]["activeDeadlineSeconds"] > 0 and pod["restartPolicy"] == "Never", f"{name}: may never end")
            own = [d for d in self.documents if d["metadata"]["labels"].get("holdfast/workload") == "migration"]
            weight = lambda document: int(document["metadata"].get("annotations", {}).get("helm.sh/hook-weight", 0))
            for document in own:
                annotations = document["metadata"].get("annotations", {})
                hook = "pre-install,pre-upgrade" if hooks else None
                self.need(annotations.get("helm.sh/hook") == hook, f"{self.name(document)}: is it a hook?")
                if hooks:
                    self.need(annotations["helm.sh/hook-delete-policy"] == "before-hook-creation", f"{self.name(document)}: stays in the way")
                    self.need(document is job or weight(document) < weight(job), f"{self.name(document)}: comes after the Job that needs it")
            others = [n for n, (_, other) in self.pods.items() if n != name and other["serviceAccountName"] == pod["serviceAccountName"]]
            self.need(not others, f"{name}: shares its identity with {others}")

    def check_services(self):
        for service in self.of("Service"):
            name = self.name(service)
            chosen = [pod for labels, pod in self.pods.values() if matches({"matchLabels": service["spec"]["selector"]}, labels)]
            self.need(chosen, f"{name}: selects nothing")
            for port, pod in itertools.product(service["spec"]["ports"], chosen):
                named = [p["name"] for c in pod["containers"] for p in c.get("ports", [])]
                self.need(port["targetPort"] in named, f"{name}: a pod has no port {port['targetPort']}")
            admin = [port for port in service["spec"]["ports"] if port["targetPort"] == "admin"]
            self.need(not admin or service["spec"].get("clusterIP") == "None", f"{name}: balances over admin ports")
            if admin:
                self.need(len(chosen) == len(self.of("Deployment")), f"{name}: does not reach every process")

    def check_policies(self):
        policies = self.of("NetworkPolicy")
        if not self.merged("networkPolicy.enabled"):
            self.need(not policies, "network policies that were switched off")
            return
        admins = (self.merged("networkPolicy.monitoring") or []) + (self.merged("networkPolicy.operators") or [])
        for name, (labels, _) in self.pods.items():
            mine = [policy["spec"] for policy in policies if matches(policy["spec"]["podSelector"], labels)]
            closed = any(set(s["policyTypes"]) == {"Ingress", "Egress"} and not s.get("ingress") and not s.get("egress") for s in mine)
            self.need(closed, f"{name}: nothing denies what is not opened")
            for rule in (rule for spec in mine for rule in spec.get("ingress") or []):
                ports = [port["port"] for port in rule.get("ports") or []]
                self.need(ports and set(ports) <= {"http", "admin"}, f"{name}: is open on {ports or 'every port'}")
                if "admin" in ports or not ports:
                    self.need(rule.get("from") and rule["from"] == admins, f"{name}: the admin port is open to {rule.get('from', 'everybody')}")
                self.need(labels["holdfast/workload"] in ("engine", "signing"), f"{name}: serves nothing and is open")
            for rule in (rule for spec in mine for rule in spec.get("egress") or []):
                self.need(rule.get("ports"), f"{name}: may connect to every port")
            out = {port["port"] for spec in mine for rule in spec.get("egress") or [] for port in rule.get("ports") or []}
            self.need(set(self.merged("networkPolicy.egress.postgres.ports")) <= out, f"{name}: cannot reach Postgres")

    def check_monitoring(self):
        monitors, rules = self.of("ServiceMonitor"), self.of("PrometheusRule")
        self.need(len(monitors) == int(self.merged("serviceMonitor.enabled")), f"{len(monitors)} ServiceMonitors")
        for monitor in monitors:
            spec = monitor["spec"]
            self.need(set(spec) == {"selector", "namespaceSelector", "podTargetLabels", "endpoints"}, f"{self.name(monitor)}: {sorted(spec)}")
            self.need(spec["namespaceSelector"] == {"matchNames": [NAMESPACE]}, f"{self.name(monitor)}: looks elsewhere")
            (endpoint,) = spec["endpoints"]
            self.need(set(endpoint) == {"port", "path", "interval", "scrapeTimeout"}, f"{self.name(monitor)}: {sorted(endpoint)}")
            self.need(endpoint["path"] == "/metrics", f"{self.name(monitor)}: {endpoint['path']}")
            chosen = [service for service in self.of("Service") if matches(spec["selector"], service["metadata"]["labels"])]
            ports = [port["name"] for service in chosen for port in service["spec"]["ports"]]
            self.need(len(chosen) == 1 and ports == [endpoint["port"]], f"{self.name(monitor)}: finds {len(chosen)} Services with {ports}")
        found = {}
        prefix = self.merged("prometheusRule.runbookUrlPrefix")
        for rule in (rule for document in rules for group in document["spec"]["groups"] for rule in group["rules"]):
            url = rule.get("annotations", {}).get("runbook_url")
            if url:
                self.need(url.startswith(prefix), f"{rule['alert']}: runbook {url}")
                rule["annotations"]["runbook_url"] = url.removeprefix(prefix)
        for document in rules:
            found[document["metadata"]["name"]] = document["spec"]
        files = [load(path) for path in sorted((CHART / "alerts").glob("*.rules.yaml"))]
        wanted = files if self.merged("prometheusRule.enabled") else []
        self.need([found[name] for name in sorted(found)] == wanted, "the PrometheusRule is not what alerts/*.rules.yaml hold")
        boards = {key: text for document in self.of("ConfigMap") for key, text in document["data"].items()}
        paths = sorted((CHART / "dashboards").glob("*.json")) if self.merged("dashboards.enabled") else []
        self.need({key: json.loads(text) for key, text in boards.items()} == {path.name: json.loads(path.read_text()) for path in paths}, "the dashboards are not those of dashboards/*.json")
        self.need(all(len(text) < 1_000_000 for text in boards.values()), "a dashboard is too large for a ConfigMap")


def check_pools_example(documents):
    """Five signing roles of two replicas, one of a single replica, and two identities each."""
    found = {}
    for document in documents:
        if document["kind"] == "Deployment" and document["metadata"]["labels"]["holdfast/workload"] == "signing":
            identities = document["metadata"]["annotations"]["holdfast/identities"].split(",")
            found[document["metadata"]["labels"]["app.kubernetes.io/component"]] = (document["spec"]["replicas"], len(set(identities)))
    five = ["relayer", "automation", "funding-oracle", "resolution-attester", "guardian"]
    wanted = {**{name: (2, 2) for name in five}, "revenue": (1, 2)}
    return [] if found == wanted else [f"replicas and identities of the roles are {found}, not {wanted}"]


def check_special(name, documents):
    """What single cases are there to show."""
    text = {}
    for document in documents:
        if document["kind"] == "Deployment":
            environment = document["spec"]["template"]["spec"]["containers"][0]["env"]
            text[document["metadata"]["labels"]["app.kubernetes.io/component"]] = {v["name"]: v.get("value") for v in environment}
    if name == "pools":
        return check_pools_example(documents)
    if name == "zero and false are settings" and text["relayer"]["TX_LANE_WIDTH"] != "0":
        return [f"TX_LANE_WIDTH is {text['relayer']['TX_LANE_WIDTH']}, not 0"]
    if name == "large numbers" and text["engine"]["TX_MAX_FEE_PER_GAS_WEI"] != "500000000000":
        return [f"TX_MAX_FEE_PER_GAS_WEI is {text['engine']['TX_MAX_FEE_PER_GAS_WEI']}"]
    if name == "several chains" and ("RPC_URL_FILE" in text["engine"] or "HOLDFAST_CONFIG" not in text["engine"]):
        return ["a file of settings does not take the place of the endpoints"]
    return []


def main():
    settings, roles = settings_of_the_program(), roles_of_the_program()
    wrong = []
    schema = json.loads((CHART / "values.schema.json").read_text())
    offered = set(schema["definitions"]["settings"]["properties"])
    meant = {name for name, secret in settings.items() if not secret} - SET_BY_THE_CHART
    if offered != meant:
        wrong.append(f"values.schema.json: settings that differ from config.toml: {sorted(offered ^ meant)}")
    takes, denies = accepted(), refused()
    documents_seen = set()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        # The same text of two helms is looked at once.
        seen = {}
        rendered = {(helm, name): pool.submit(render, helm, values, folder) for name, values in takes.items() for helm in HELMS}
        declined = {(helm, name): pool.submit(render, helm, values, folder) for name, (values, _) in denies.items() for helm in HELMS}
        for (helm, name), future in rendered.items():
            done, label = future.result(), f"{pathlib.Path(helm).name}, {name}"
            if done.returncode != 0:
                wrong.append(f"{label}: is refused: {done.stderr.strip()}")
                continue
            if seen.get(name) == done.stdout:
                continue
            seen[name] = done.stdout
            documents = [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document]
            documents_seen.update(json.dumps(d, sort_keys=True) for d in documents if d["kind"] not in CUSTOM)
            try:
                found = Case(takes[name], documents, settings, roles).check() + check_special(name, documents)
            except (KeyError, TypeError, ValueError) as error:
                found = [f"is not built as expected: {type(error).__name__}: {error}"]
            wrong += [f"{label}: {text}" for text in found]
        for (helm, name), future in declined.items():
            done, label = future.result(), f"{pathlib.Path(helm).name}, {name}"
            part = denies[name][1]
            if done.returncode == 0:
                wrong.append(f"{label}: is accepted")
            elif part not in done.stderr:
                wrong.append(f"{label}: is refused without a word of {part}: {done.stderr.strip()}")
            elif KEY in done.stderr or "word@" in done.stderr:
                wrong.append(f"{label}: the refusal shows the secret")
    for text in dict.fromkeys(wrong):
        print(f"chart: WRONG: {text}", file=sys.stderr)
    print(
        f"chart: {len(takes)} sets of values rendered and {len(denies)} refused by each of {len(HELMS)} helms, "
        f"{len(documents_seen)} different documents against the schemas of Kubernetes {' and '.join(RELEASES)}, {len(set(wrong))} faults"
    )
    return 1 if wrong else 0


sys.exit(main())
