//! What operators see holds together: every metric is drawn and documented, every alert names metrics that exist, has tests both ways
//! and a runbook, and what the runbook tells to run can be run. `scripts/promtool.sh` runs the rules themselves, and
//! `scripts/dashboards.sh` the queries of the panels.

use holdfast::telemetry::metrics::{ALL, Metric};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const RULES: &str = "charts/holdfast/alerts/holdfast.rules.yaml";
const CASES: &str = "charts/holdfast/alerts/holdfast.test.yaml";
const DASHBOARDS: &str = "charts/holdfast/dashboards";
/// The dashboards, by the names of their files; each has the uid `holdfast-` and its name, which links and bookmarks rely on.
const NAMES: [&str; 5] = ["delivery", "fees", "lanes", "overview", "rpc"];
const OPERATIONS: &str = "docs/operations.md";
const METRICS: &str = "docs/metrics.md";
/// Grafana 11 reads this and newer ones without a migration.
const SCHEMA_MIN: u64 = 39;

fn path(file: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: impl AsRef<Path>) -> String {
    let file = path(file);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn found<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|captures| captures.get(1).unwrap().as_str()).collect()
}

/// Every value of this key in a document, however deep.
fn values<'a>(key: &str, of: &'a Value, into: &mut Vec<&'a str>) {
    match of {
        Value::Object(map) => {
            into.extend(map.get(key).and_then(Value::as_str));
            map.values().for_each(|value| values(key, value, into));
        }
        Value::Array(list) => list.iter().for_each(|value| values(key, value, into)),
        _ => {}
    }
}

fn dashboard(name: &str) -> Value {
    serde_json::from_str(&read(format!("{DASHBOARDS}/{name}.json"))).unwrap()
}

fn dashboards() -> Vec<(&'static str, Value)> {
    NAMES.into_iter().map(|name| (name, dashboard(name))).collect()
}

/// The panels, also those in closed rows.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let is_row = |panel: &Value| panel["type"] == "row";
    let top = dashboard["panels"].as_array().unwrap();
    let rows = top.iter().filter(|panel| is_row(panel)).filter_map(|row| row["panels"].as_array()).flatten();
    top.iter().filter(|panel| !is_row(panel)).chain(rows).collect()
}

/// What a dashboard asks Prometheus, with the legend of it.
fn queries(dashboard: &Value) -> Vec<(&str, &str)> {
    let targets = panels(dashboard).into_iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap())).collect()
}

/// The variables of a dashboard that stand for values of labels.
fn variables(dashboard: &Value) -> BTreeSet<&str> {
    let list = dashboard["templating"]["list"].as_array().unwrap();
    list.iter().filter(|variable| variable["type"] == "query").map(|variable| variable["name"].as_str().unwrap()).collect()
}

/// The names under which a metric is scraped.
fn series() -> BTreeMap<String, &'static str> {
    let mut names = BTreeMap::new();
    for metric in ALL {
        let name = metric.description().name;
        match metric {
            Metric::Histogram(_) => names.extend(["_bucket", "_sum", "_count"].map(|end| (format!("{name}{end}"), name))),
            _ => names.extend([(name.to_owned(), name)]),
        }
    }
    names
}

/// The text of the rules without comments and texts for people.
fn rule_code() -> String {
    let human = Regex::new(r"(?m)^\s*(#|summary:|description:|runbook_url:).*$").unwrap();
    human.replace_all(&read(RULES), "").into_owned()
}

struct Alert {
    name: String,
    text: String,
}

fn alerts() -> Vec<Alert> {
    let rules = read(RULES);
    rules
        .split("- alert: ")
        .skip(1)
        .map(|rest| {
            let text = rest.split("\n  - name: ").next().unwrap();
            Alert { name: text.lines().next().unwrap().trim().into(), text: text.into() }
        })
        .collect()
}

/// The headings of alerts: all that stand below `# Runbooks` at the third level.
fn runbooks() -> Vec<String> {
    let text = read(OPERATIONS);
    let (_, below) = text.split_once("\n# Runbooks\n").expect("operations.md has a part for runbooks");
    found(r"(?m)^### (\S+)$", below).into_iter().map(Into::into).collect()
}

#[test]
fn every_metric_stands_in_a_panel() {
    let (dashboards, series) = (dashboards(), series());
    let exprs = dashboards.iter().flat_map(|(_, dashboard)| queries(dashboard)).map(|(expr, _)| expr);
    let drawn: BTreeSet<&str> =
        exprs.flat_map(|expr| found(r"\b([a-z_:0-9]+)\b", expr)).filter_map(|word| series.get(word).copied()).collect();
    let missing: Vec<&str> = ALL.iter().map(|metric| metric.description().name).filter(|name| !drawn.contains(name)).collect();
    assert!(missing.is_empty(), "{DASHBOARDS} has no panel for {missing:?}");
}

#[test]
fn rules_and_panels_name_only_series_that_exist() {
    let (rules, dashboards, series) = (rule_code(), dashboards(), series());
    let recorded = found(r"(?m)- record: (\S+)$", &rules);
    let mut exprs = vec![rules.as_str()];
    for (_, dashboard) in &dashboards {
        values("expr", dashboard, &mut exprs);
        values("query", dashboard, &mut exprs);
    }
    for expr in exprs {
        for word in found(r"\b((?:holdfast|db)[_:][a-z_:0-9]+)\b", expr) {
            assert!(series.contains_key(word) || recorded.contains(&word), "{word} does not exist, in {expr}");
        }
    }
}

/// `scripts/dashboards.sh` sees this for series that exist; here also for those of faults that did not happen.
#[test]
fn panels_name_only_labels_that_their_series_have() {
    let series = series();
    let labels: BTreeMap<&str, Vec<&str>> = ALL
        .iter()
        .map(|metric| metric.description())
        .map(|about| (about.name, about.labels.iter().map(|label| label.name).collect()))
        .collect();
    for (name, dashboard) in dashboards() {
        for (expr, legend) in queries(&dashboard) {
            let metrics: Vec<&str> = found(r"\b([a-z_:0-9]+)\b", expr).into_iter().filter_map(|word| series.get(word).copied()).collect();
            // Rules of the recording kind and ALERTS have labels of their own.
            if metrics.is_empty() {
                continue;
            }
            let had: BTreeSet<&str> = metrics.iter().flat_map(|metric| &labels[metric]).copied().chain(["instance", "le"]).collect();
            let grouped: Vec<&str> = found(r"\bby \(([^)]*)\)", expr).into_iter().flat_map(|list| list.split(", ")).collect();
            let matched = found(r#"[{,](\w+)(?:=|!=|=~|!~)""#, expr);
            for label in grouped.iter().chain(&matched) {
                assert!(had.contains(label), "{name}: no series has the label {label}, in {expr}");
            }
            for label in found(r"\{\{(\w+)\}\}", legend) {
                assert!(grouped.contains(&label), "{name}: the legend {legend} names {label}, by which nothing is grouped, in {expr}");
            }
        }
    }
}

#[test]
fn the_runbooks_name_only_metrics_that_exist() {
    let (text, series) = (read(OPERATIONS), series());
    let named: BTreeSet<&str> = found(r"`((?:holdfast_[a-z_]+|db_[a-z_]+))(?:\{[^`]*)?`", &text).into_iter().collect();
    assert!(named.len() >= 3, "{named:?}");
    let unknown: Vec<_> = named.into_iter().filter(|word| !series.contains_key(*word)).collect();
    assert!(unknown.is_empty(), "{OPERATIONS} names {unknown:?}");
}

#[test]
fn every_dashboard_can_be_provisioned() {
    let files = fs::read_dir(path(DASHBOARDS)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), NAMES.map(|name| format!("{name}.json")).into());
    for (name, dashboard) in dashboards() {
        assert_eq!(dashboard["uid"], format!("holdfast-{name}"));
        assert_eq!(dashboard["title"], format!("Holdfast: {name}"));
        assert!(dashboard["schemaVersion"].as_u64() >= Some(SCHEMA_MIN), "{name}");
        assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource", "{name}");
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap().iter().chain(panels(&dashboard)) {
            let at = &panel["gridPos"];
            assert!(at["x"].as_u64().unwrap() + at["w"].as_u64().unwrap() <= 24, "{name}: {} is too wide", panel["title"]);
            ids.insert(panel["id"].as_u64().unwrap());
        }
        let rows = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] == "row").count();
        assert_eq!(ids.len(), rows + panels(&dashboard).len(), "{name}: two panels have one id");
    }
}

#[test]
fn every_panel_says_what_it_shows_and_what_is_good() {
    for (name, dashboard) in dashboards() {
        let mut titles = BTreeSet::new();
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            assert!(titles.insert(title), "{name}: two panels are called {title}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title} has no unit");
            assert!(panel["description"].as_str().is_some_and(|text| text.len() > 30), "{name}: {title} does not say what is good");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{name}: {title} shows nothing");
            for target in targets {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
            }
        }
    }
}

#[test]
fn the_variables_of_a_dashboard_are_those_that_its_panels_use() {
    for (name, dashboard) in dashboards() {
        let asked: Vec<&str> = queries(&dashboard).into_iter().map(|(expr, _)| expr).collect();
        let used: BTreeSet<&str> = asked.iter().flat_map(|expr| found(r"\$([a-z]\w*)", expr)).collect();
        assert_eq!(used, variables(&dashboard), "{name}");
    }
}

#[test]
fn the_dashboards_lead_to_each_other() {
    for (name, from) in dashboards() {
        assert_eq!(from["links"][0]["tags"], from["tags"], "{name} has no link to the others");
        assert_eq!(from["tags"][0], "holdfast", "{name} is not found by the links of the others");
        let mut urls = Vec::new();
        values("url", &from, &mut urls);
        for url in urls.into_iter().filter(|url| !url.is_empty()) {
            let to = found(r"^/d/holdfast-(\w+)\?", url);
            assert!(NAMES.contains(&to[0]), "{name} links to {url}");
            for variable in found(r"\$\{(\w+):queryparam\}", url) {
                assert!(
                    variables(&from).contains(variable) && variables(&dashboard(to[0])).contains(variable),
                    "{name}: {variable} in {url}"
                );
            }
        }
    }
}

/// The table of `docs/metrics.md`, as the catalogue has it.
fn table() -> String {
    let mut lines = String::new();
    for metric in ALL {
        let about = metric.description();
        let labels: Vec<String> = about
            .labels
            .iter()
            .map(|label| {
                if label.values.is_empty() {
                    format!("`{}`", label.name)
                } else {
                    format!("`{}` ({})", label.name, label.values.join(", "))
                }
            })
            .collect();
        let labels = if labels.is_empty() { "–".into() } else { labels.join(", ") };
        lines += &format!("| `{}` | {} | {labels} | {} |\n", about.name, metric.kind(), about.help);
    }
    lines
}

#[test]
fn the_page_of_metrics_is_the_catalogue() {
    let text = read(METRICS);
    let head = "| name | type | labels | meaning |\n| --- | --- | --- | --- |\n";
    let (before, rest) = text.split_once(head).expect("metrics.md has a table");
    let (old, after) = rest.split_once("\n\n").expect("metrics.md goes on after its table");
    let new = table();
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        return fs::write(path(METRICS), format!("{before}{head}{new}\n{after}")).unwrap();
    }
    let old: BTreeSet<&str> = old.lines().collect();
    let new: BTreeSet<&str> = new.lines().collect();
    let (gone, missing): (Vec<_>, Vec<_>) = (old.difference(&new).collect(), new.difference(&old).collect());
    assert!(gone.is_empty() && missing.is_empty(), "{METRICS} has {gone:#?} and lacks {missing:#?}; draw it again with UPDATE_SNAPSHOTS=1");
}

#[test]
fn every_alert_says_how_bad_what_is_at_risk_and_where_to_read_on() {
    for Alert { name, text } in alerts() {
        let severity = found(r"severity: (\w+)", &text);
        assert!(matches!(severity[..], ["critical" | "warning" | "info"]), "{name}: {severity:?}");
        assert_eq!(found(r"\n\s+(summary): \S", &text).len(), 1, "{name} has no summary");
        assert_eq!(found(r"\n\s+description: .* Run: (holdfast .+)\n", &text).len(), 1, "{name} does not say what to run first");
        let link = format!("{OPERATIONS}#{}", name.to_lowercase());
        assert_eq!(found(r"runbook_url: (\S+)", &text), [link], "{name}");
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts: Vec<String> = alerts().into_iter().map(|alert| alert.name).collect();
    let (with, without): (BTreeSet<&String>, BTreeSet<String>) = (alerts.iter().collect(), runbooks().into_iter().collect());
    assert_eq!(with.len(), alerts.len(), "two alerts have one name");
    assert_eq!(with.into_iter().cloned().collect::<BTreeSet<_>>(), without);
}

#[test]
fn every_runbook_has_its_parts() {
    let text = read(OPERATIONS);
    for name in runbooks() {
        let section = text.split(&format!("\n### {name}\n")).nth(1).unwrap().split("\n#").next().unwrap();
        for part in ["First: `holdfast ", "**Symptom.**", "**Impact.**", "**Confirm.**", "**Act.**", "**Verify.**"] {
            assert!(section.contains(part), "{name} lacks {part}");
        }
    }
}

#[test]
fn every_alert_is_seen_firing_and_silent() {
    let cases = read(CASES);
    for Alert { name, .. } in alerts() {
        let of_it = Regex::new(&format!(r"alertname: {name}\n\s+exp_alerts:( \[\])?")).unwrap();
        let silent: Vec<bool> = of_it.captures_iter(&cases).map(|case| case.get(1).is_some()).collect();
        assert!(silent.contains(&false), "{CASES} never sees {name} fire");
        assert!(silent.contains(&true), "{CASES} never sees {name} silent");
    }
}

#[test]
fn every_variable_of_the_configuration_is_explained() {
    let (config, text) = (read("config.toml"), read(OPERATIONS));
    for names in found(r"(?m)^\w+ = .*\[([^\]]+)\]$", &config) {
        for name in names.split(',').map(str::trim).filter(|name| !matches!(*name, "by commas" | "as JSON")) {
            assert!(text.contains(&format!("`{name}`")), "{OPERATIONS} says nothing of {name}");
        }
    }
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy();
        if entry.is_dir() {
            sources(&entry, into);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "testing.rs" {
            into.push(entry);
        }
    }
}

#[test]
fn every_event_of_the_log_is_listed() {
    let text = read(OPERATIONS);
    let mut files = Vec::new();
    sources(&path("src"), &mut files);
    for file in files {
        let source = read(&file);
        for event in found(r#"event = "(\w+)""#, source.split("#[cfg(test)]").next().unwrap()) {
            assert!(text.contains(&format!("\n| `{event}` |")), "{OPERATIONS} lists no {event}, of {}", file.display());
        }
    }
}

#[test]
fn what_operators_are_told_to_run_can_be_run() {
    let text = read(OPERATIONS) + &read(RULES).replace("Run: holdfast ", "`holdfast ");
    let told: BTreeSet<&str> = found(r"`holdfast ([a-z]+(?: [a-z]+(?:-[a-z]+)*)?)", &text).into_iter().collect();
    assert!(told.len() > 10, "{told:?}");
    for words in told {
        let help = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(words.split(' ')).arg("--help").output().unwrap();
        let said = String::from_utf8_lossy(&help.stdout);
        let usage = format!("Usage: holdfast {words}");
        assert!(help.status.success() && said.contains(&usage), "`holdfast {words}` does not exist: {said}");
    }
}
