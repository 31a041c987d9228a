//! `docs/requirements.md` names the test of every requirement. Owns the check that it names all of them once, and only tests that exist;
//! and the checks of what only a text can meet: the delivery contract, the conventions for rows, links and names that lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROWS: usize = 407;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Row {
    id: String,
    shown_by: String,
}

/// `TOP-01`: letters, a dash, two digits.
fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(group, number)| {
        group.len() >= 2 && group.chars().all(|c| c.is_ascii_uppercase()) && number.len() == 2 && number.chars().all(|c| c.is_ascii_digit())
    })
}

fn rows() -> Vec<Row> {
    let text = read("docs/requirements.md");
    let cells = text.lines().map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    cells
        .filter(|cells| is_id(cells[0]))
        .map(|cells| {
            assert_eq!(cells.len(), 3, "{} needs three cells", cells[0]);
            Row { id: cells[0].into(), shown_by: cells[2].into() }
        })
        .collect()
}

/// What stands between backticks and looks like `path::name`.
fn named_tests(cell: &str) -> impl Iterator<Item = (&str, &str)> {
    cell.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_once("::"))
}

#[test]
fn every_requirement_has_one_row() {
    let rows = rows();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!((rows.len(), ids.len()), (ROWS, ROWS));
}

#[test]
fn a_row_names_a_test_or_says_why_there_is_none() {
    for Row { id, shown_by } in rows() {
        let group = id.split('-').next().unwrap_or_default();
        let later = shown_by.contains(&format!("later ({group}): "));
        assert!(later || named_tests(&shown_by).next().is_some(), "{id} names no test and does not say \"later ({group}): …\"");
    }
}

#[test]
fn every_named_test_exists() {
    for Row { id, shown_by } in rows() {
        all_exist(&id, &shown_by);
    }
}

fn all_exist(what: &str, cell: &str) {
    for (path, name) in named_tests(cell) {
        let text = read(path);
        // A rule file of Prometheus has no functions, only names.
        let wanted = if path.ends_with(".rs") { format!("fn {name}(") } else { name.to_owned() };
        assert!(text.contains(&wanted), "{what} names {path}::{name}, which is not there");
    }
}

#[test]
fn every_fault_of_the_field_names_its_test() {
    let text = read("docs/scenarios.md");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert_eq!(lines.len(), 29);
    for line in lines {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [fault, shown_by] = cells[..] else { panic!("{line}") };
        assert!(named_tests(shown_by).next().is_some() || shown_by.contains("later, with batches"), "{fault} names no test");
        all_exist(fault, shown_by);
    }
}

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Every document of the project, by its path.
fn all_documents() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)).into();
    documents(&root().join("docs"), &mut files);
    files
}

#[test]
fn the_delivery_contract_is_written_down_and_nothing_promises_more() {
    let readme = read("README.md");
    assert!(readme.contains("## Delivery contract") && readme.contains("at-least-once"));
    for file in all_documents().iter().filter(|file| !file.ends_with("requirements.md")) {
        let text = read(file).to_lowercase();
        assert!(!text.contains("exactly-once") && !text.contains("exactly once"), "{} promises too much", file.display());
    }
}

#[test]
fn the_conventions_for_rows_are_written_down() {
    let text = read("CONTRIBUTING.md");
    assert!(text.contains("## Rows"));
    for word in ["FromQueryResult", "try_get", "RETURNING *", "serde_json::Value"] {
        assert!(text.contains(word), "the section on rows says nothing of {word}");
    }
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    for file in all_documents() {
        let text = read(&file);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let path = file.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(path.exists(), "{} links to {target}", file.display());
        }
    }
}

/// The map is read in one sitting and says nothing of files that are gone.
#[test]
fn the_map_is_short_and_names_files_that_exist() {
    let text = read("ARCHITECTURE.md");
    assert!(text.lines().count() <= 200);
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |word: &str| {
        let known = [".rs", ".sql", ".tsv", ".lua", ".md", ".toml", "/"].iter().any(|end| word.ends_with(end));
        known && word.contains('/') && !word.contains([' ', '<', '|', '{'])
    };
    for path in quoted.filter(|word| is_path(word)) {
        let found = root().join(path).exists() || root().join("src").join(path).exists();
        assert!(found, "ARCHITECTURE.md names {path}, which is not there");
    }
}
