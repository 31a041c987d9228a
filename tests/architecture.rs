//! Owns the check of the map in ARCHITECTURE.md: which room may import which, which name lives where, how long a file grows.
//! A fault names the file, the line and the rule. Comments, literals and test code are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of `src` in the direction of imports, and what each may take besides `EVERYWHERE`.
const ROOMS: &[(&str, &[&str])] = &[
    ("fail", &[]),
    ("clock", &[]),
    ("config", &[]),
    ("telemetry", &[]),
    ("domain", &[]),
    ("store", &["domain"]),
    ("chain", &["domain"]),
    ("signer", &["domain"]),
    ("delivery", &["domain"]),
    ("actors", &["domain", "store", "chain", "signer", "delivery"]),
    ("jobs", &["actors", "domain", "store", "chain", "signer", "delivery"]),
    ("operator", &["actors", "domain", "store", "chain", "delivery"]),
    ("http", &["operator", "actors", "domain", "store"]),
    ("local", &[]),
    ("app", &["local", "http", "operator", "jobs", "actors", "domain", "store", "chain", "signer", "delivery"]),
    ("cli", &["app", "local", "operator", "domain"]),
    ("main", &["app", "cli"]),
    ("lib", &[]),
];

/// What any room may import, but for those in `ALONE`.
const EVERYWHERE: &[&str] = &["fail", "clock", "config", "telemetry"];
const ALONE: &[&str] = &["domain", "fail", "clock", "config"];

/// Paths that may be written only in these folders or files of `src`. Of two that match, the longer rules.
const LIVES_IN: &[(&str, &[&str])] = &[
    ("sea_orm", &["store"]),
    ("sqlx", &["store"]),
    ("ActiveModel", &["store"]),
    // A write needs a Tx, so http cannot write.
    ("Tx", &["store", "actors", "jobs", "operator"]),
    ("redis", &["delivery"]),
    ("bb8_redis", &["delivery"]),
    ("bullmq", &["delivery"]),
    ("web3", &["chain", "signer"]),
    ("actix", &["actors", "app"]),
    ("actix_rt", &["actors", "http", "app", "main.rs"]),
    ("actix_web", &["http", "app", "main.rs"]),
    ("StatusCode", &["http", "chain", "signer"]),
    ("actix_web::http::StatusCode", &["http"]),
    ("std::env", &["config", "fail.rs"]),
    ("std::process", &["local", "cli", "main.rs"]),
    ("std::process::id", &["config", "local", "telemetry"]),
    ("tokio::process", &["local"]),
    ("Utc::now", &["clock.rs"]),
    // The queue crate compares due times with the system clock itself.
    ("SystemTime::now", &["clock.rs", "delivery"]),
];

/// What these rooms may take from the crate `entity`: the words, not the rows.
const WORDS: &[&str] = &["states", "ids", "values"];
const WORDS_ONLY: &[&str] = &["domain", "config"];

/// Lines of a file without its tests; `main.rs` only hands over.
const FILE_LINES_MAX: usize = 500;
const MAIN_LINES_MAX: usize = 80;

/// All faults below `src`, sorted.
pub fn faults(src: &Path) -> Vec<String> {
    let mut texts: BTreeMap<String, (String, String)> = BTreeMap::new();
    for path in rust_files(src) {
        let name = path.strip_prefix(src).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        let code = without_literals(&text);
        texts.insert(name, (text, code));
    }
    let mut tests = BTreeSet::new();
    for (name, (text, code)) in &mut texts {
        let (kept, files) = without_tests(name, text, code);
        *code = kept;
        tests.extend(files);
    }
    let mut found = Vec::new();
    let mut edges: BTreeMap<(String, String), String> = BTreeMap::new();
    for (name, (_, code)) in texts.iter().filter(|(name, _)| !is_test(name, &tests)) {
        check_file(name, code, &mut found, &mut edges);
    }
    found.extend(cycles(&edges));
    found.sort();
    found.dedup();
    found
}

fn check_file(name: &str, code: &str, found: &mut Vec<String>, edges: &mut BTreeMap<(String, String), String>) {
    let home = name.split('/').next().unwrap().trim_end_matches(".rs");
    let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| *room == home) else {
        found.push(format!("{name}:1: {home} is no room of the map"));
        return;
    };
    let length = code.trim_end().lines().count();
    let limit = if name == "main.rs" { MAIN_LINES_MAX } else { FILE_LINES_MAX };
    if length > limit {
        found.push(format!("{name}:{length}: {length} lines, at most {limit}"));
    }
    let depth = name.split('/').count() - usize::from(name.ends_with("/mod.rs"));
    for Written { line, imported, path } in paths(code) {
        if let Some(room) = room_of(&path, depth, name) {
            if room == "*" {
                found.push(format!("{name}:{line}: name the room instead of importing the whole crate"));
            } else if room != home && ROOMS.iter().any(|(known, _)| *known == room) {
                edges.entry((home.into(), room.clone())).or_insert_with(|| format!("{name}:{line}"));
                let common = EVERYWHERE.contains(&room.as_str()) && !ALONE.contains(&home);
                if !common && !allowed.contains(&room.as_str()) {
                    found.push(format!("{name}:{line}: {home} may not import {room}"));
                }
            }
        }
        if WORDS_ONLY.contains(&home) && path[0] == "entity" && path.get(1).is_none_or(|word| !WORDS.contains(&word.as_str())) {
            let other = path.get(1).map_or("all of it", String::as_str);
            found.push(format!("{name}:{line}: {home} may take {WORDS:?} from entity, not {other}"));
        }
        let rules = LIVES_IN.iter().filter(|(rule, _)| matches(&path, imported, rule));
        if let Some((rule, homes)) = rules.max_by_key(|(rule, _)| rule.len())
            && !homes.iter().any(|h| name == *h || name.starts_with(&format!("{h}/")) || name == format!("{h}.rs"))
        {
            found.push(format!("{name}:{line}: `{rule}` lives in {homes:?}"));
        }
    }
}

/// The room a path leads to when it starts at the root of the crate, also by way of `super`.
fn room_of(path: &[String], depth: usize, name: &str) -> Option<String> {
    let supers = path.iter().take_while(|s| *s == "super").count();
    let start = match path[0].as_str() {
        "crate" => 1,
        "holdfast" if name == "main.rs" => 1,
        "super" if supers >= depth => supers,
        _ => return None,
    };
    path.get(start).cloned()
}

/// Words that stand before a path and are no part of it.
const KEYWORDS: &[&str] =
    &["use", "return", "in", "as", "mut", "dyn", "impl", "match", "if", "else", "pub", "for", "where", "move", "await"];

/// Libraries are matched at the start of a path, names of one or two capitalised parts anywhere in it. A library's bare name
/// counts only where it is imported: elsewhere it is a variable.
fn matches(path: &[String], imported: bool, rule: &str) -> bool {
    let parts: Vec<&str> = rule.split("::").collect();
    if parts[0].starts_with(char::is_uppercase) {
        path.windows(parts.len()).any(|window| window == parts.as_slice())
    } else {
        path.starts_with(&parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()) && (path.len() > 1 || imported)
    }
}

/// A path as it stands in the code, groups taken apart.
struct Written {
    line: usize,
    imported: bool,
    path: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Colons,
    Other(char),
}

fn tokens(code: &str) -> Vec<(usize, Token)> {
    let (mut found, mut line) = (Vec::new(), 1);
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\n' {
            line += 1;
        } else if is_word(c) {
            let mut word = String::from(c);
            while let Some(c) = rest.next_if(|c| is_word(*c)) {
                word.push(c);
            }
            if word == "r" && rest.next_if_eq(&'#').is_some() {
                continue; // a raw identifier: the name follows
            }
            found.push((line, Token::Word(word)));
        } else if c == ':' && rest.next_if_eq(&':').is_some() {
            found.push((line, Token::Colons));
        } else if !c.is_whitespace() {
            found.push((line, Token::Other(c)));
        }
    }
    found
}

fn paths(code: &str) -> Vec<Written> {
    let tokens = tokens(code);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let Token::Word(word) = &tokens[at].1 else {
            at += 1;
            continue;
        };
        let before = |n: usize| at.checked_sub(n).map(|at| &tokens[at].1);
        if KEYWORDS.contains(&word.as_str()) || before(1) == Some(&Token::Other('.')) {
            at += 1;
            continue;
        }
        let keyword = if before(1) == Some(&Token::Colons) { before(2) } else { before(1) };
        let (imported, first) = (keyword == Some(&Token::Word("use".into())), found.len());
        at = tree(&tokens, at, &[], &mut found);
        found[first..].iter_mut().for_each(|written: &mut Written| written.imported = imported);
    }
    found
}

/// Reads one path or use tree from `at` on; returns where it ends.
fn tree(tokens: &[(usize, Token)], mut at: usize, prefix: &[String], found: &mut Vec<Written>) -> usize {
    let mut path = prefix.to_vec();
    let line = tokens[at].0;
    loop {
        match tokens.get(at).map(|(_, token)| token) {
            Some(Token::Word(word)) => path.push(word.clone()),
            Some(Token::Other('*')) => path.push("*".into()),
            Some(Token::Other('{')) if !path.is_empty() => {
                at += 1;
                while !matches!(tokens.get(at), None | Some((_, Token::Other('}')))) {
                    at = if matches!(tokens[at].1, Token::Word(_) | Token::Other('{' | '*')) {
                        tree(tokens, at, &path, found)
                    } else {
                        at + 1
                    };
                }
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        if tokens.get(at).map(|(_, token)| token) != Some(&Token::Colons) {
            break;
        }
        at += 1;
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    found.push(Written { line, imported: false, path });
    at
}

/// The code with comments and literals blanked; every line and column stays where it was.
fn without_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            kept.push(chars[at]);
            at += 1;
        } else {
            kept.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    kept
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let is = |at: usize, c: char| chars.get(at) == Some(&c);
    let line_end = |from: usize| chars[from..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| from + n);
    let fresh = at == 0 || !is_word(chars[at - 1]);
    match chars[at] {
        '/' if is(at + 1, '/') => line_end(at),
        '/' if is(at + 1, '*') => {
            let (mut depth, mut end) = (1, at + 2);
            while depth > 0 && end < chars.len() {
                (depth, end) = match (chars[end], chars.get(end + 1)) {
                    ('/', Some('*')) => (depth + 1, end + 2),
                    ('*', Some('/')) => (depth - 1, end + 2),
                    _ => (depth, end + 1),
                };
            }
            end
        }
        '"' => quoted_end(chars, at, '"'),
        'b' | 'c' if fresh && is(at + 1, '"') => quoted_end(chars, at + 1, '"'),
        'b' if fresh && is(at + 1, '\'') => quoted_end(chars, at + 1, '\''),
        'r' | 'b' | 'c' if fresh => {
            let raw = if chars[at] == 'r' { at + 1 } else { at + 2 };
            let hashes = chars.get(raw..).map_or(0, |rest| rest.iter().take_while(|c| **c == '#').count());
            if (chars[at] != 'r' && !is(at + 1, 'r')) || !is(raw + hashes, '"') {
                return at;
            }
            let mut end = raw + hashes + 1;
            while end < chars.len() && !(chars[end] == '"' && (1..=hashes).all(|n| is(end + n, '#'))) {
                end += 1;
            }
            (end + 1 + hashes).min(chars.len())
        }
        // A lifetime has no closing quote.
        '\'' if is(at + 1, '\\') || (is(at + 2, '\'') && !is(at + 1, '\'')) => quoted_end(chars, at, '\''),
        _ => at,
    }
}

fn quoted_end(chars: &[char], open: usize, quote: char) -> usize {
    let mut end = open + 1;
    while end < chars.len() && chars[end] != quote {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

/// The code with each item under `#[cfg(test)]` blanked, and the files such items name.
fn without_tests(name: &str, text: &str, code: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let text: Vec<char> = text.chars().collect();
    let mut code: Vec<char> = code.chars().collect();
    let (mut files, mut at) = (Vec::new(), 0);
    while let Some(from) = (at..code.len()).find(|from| code[*from..].iter().take(MARK.len()).copied().eq(MARK.chars())) {
        let (mut end, mut depth, mut attribute) = (from + MARK.len(), 0_usize, 0_usize);
        while end < code.len() {
            match code[end] {
                '[' => attribute += 1,
                ']' => attribute = attribute.saturating_sub(1),
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if attribute == 0 && depth == 0 && matches!(code[end], ';' | '}') {
                break;
            }
            end += 1;
        }
        let end = (end + 1).min(code.len());
        let item: String = code[from..end].iter().collect();
        let written: String = text[from..end].iter().collect();
        files.extend(module_file(name, &item, &written));
        code[from..end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
        at = end;
    }
    (code.into_iter().collect(), files)
}

/// The file, or the folder, that `mod name;` in the file `name` stands for.
fn module_file(name: &str, item: &str, written: &str) -> Vec<String> {
    let tokens = tokens(item);
    let words: Vec<&Token> = tokens.iter().map(|(_, token)| token).collect();
    let Some(at) = words.iter().position(|token| **token == Token::Word("mod".into())) else { return Vec::new() };
    let (Some(Token::Word(module)), Some(Token::Other(';'))) = (words.get(at + 1), words.get(at + 2)) else { return Vec::new() };
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let beside = |file: &str| if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") };
    if let Some((_, rest)) = written.split_once("#[path") {
        return rest.split('"').nth(1).map(beside).into_iter().collect();
    }
    let stem = name.rsplit('/').next().unwrap().trim_end_matches(".rs");
    let module = if matches!(stem, "mod" | "lib" | "main") { module.clone() } else { format!("{stem}/{module}") };
    vec![beside(&format!("{module}.rs")), beside(&format!("{module}/"))]
}

fn is_test(name: &str, tests: &BTreeSet<String>) -> bool {
    tests.iter().any(|test| name == test || (test.ends_with('/') && name.starts_with(test.as_str())))
}

/// Rooms that reach themselves by what is really imported, each with the place of one import.
fn cycles(edges: &BTreeMap<(String, String), String>) -> Vec<String> {
    let mut found = Vec::new();
    for ((from, to), place) in edges {
        let (mut reached, mut next) = (BTreeSet::from([to.as_str()]), vec![to.as_str()]);
        while let Some(room) = next.pop() {
            next.extend(edges.keys().filter(|(a, b)| a == room && reached.insert(b)).map(|(_, b)| b.as_str()));
        }
        if reached.contains(from.as_str()) {
            found.push(format!("{place}: {from} imports {to}, which leads back to {from}"));
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            found.extend(rust_files(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
    found
}

#[test]
fn src_keeps_its_map() {
    let faults = faults(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The faults of a tree made of these files.
#[cfg(test)]
fn faults_of(files: &[(&str, &str)]) -> Vec<String> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let folder = format!("holdfast-map-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let root = std::env::temp_dir().join(folder);
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let found = faults(&root);
    fs::remove_dir_all(&root).unwrap();
    found
}

#[test]
fn an_import_against_the_direction_is_found_however_it_is_written() {
    let ways = [
        "use crate::store::jobs;",
        "use crate::{clock::Clock, domain::{job, lane}, store};",
        "fn f() { crate::store::jobs::load() }",
        "use crate::{\n    clock::Clock,\n    store::{self, jobs},\n};",
        "use super::super::store::jobs;",
        "use super::{super::{store}};",
        "use crate::r#store::jobs;",
    ];
    for way in ways {
        let found = faults_of(&[("delivery/queue.rs", &format!("//! head\n{way}\n"))]);
        assert_eq!(found.len(), 1, "{way}: {found:?}");
        let line = if way.contains('\n') { 4 } else { 2 };
        assert_eq!(found[0], format!("delivery/queue.rs:{line}: delivery may not import store"), "{way}");
    }
    assert_eq!(faults_of(&[("chain/mod.rs", "use super::store::X;")]), ["chain/mod.rs:1: chain may not import store"]);
    assert_eq!(faults_of(&[("domain/job.rs", "use crate::clock::Clock;")]), ["domain/job.rs:1: domain may not import clock"]);
    assert_eq!(faults_of(&[("main.rs", "use holdfast::store;")]), ["main.rs:1: main may not import store"]);
    assert_eq!(faults_of(&[("http/mod.rs", "use crate::*;")]), ["http/mod.rs:1: name the room instead of importing the whole crate"]);
}

#[test]
fn what_the_map_allows_is_no_fault() {
    let found = faults_of(&[
        ("http/jobs/get.rs", "use crate::{config, domain::job, store::{self, jobs}};\nuse super::super::routes;\nuse actix_web::web;"),
        ("cli/mod.rs", "use crate::{app, local, operator};\nuse std::process::ExitCode;"),
        ("app.rs", "use crate::{actors, cli_names, http, local};"),
        ("domain/job.rs", "use entity::{ids::JobId, states};\nuse sea::entity::job;"),
        ("config/service.rs", "use std::env;\nfn f() -> u32 { std::process::id() }"),
        ("store/mod.rs", "pub(crate) mod x; pub(in crate::store) fn f() { self.redis.get(); let redis = 1; }"),
        ("chain/x.rs", "use reqwest::StatusCode;"),
        ("main.rs", "fn main() { holdfast::cli::run() }"),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_name_away_from_its_home_is_found() {
    let cases = [
        ("http/x.rs", "use sea_orm::Set;", "`sea_orm`"),
        ("http/x.rs", "fn f(tx: &mut store::Tx) {}", "`Tx`"),
        ("actors/x.rs", "use std::{\nenv, fs};", "`std::env`"),
        ("actors/x.rs", "let now = chrono::Utc::now();", "`Utc::now`"),
        ("jobs/x.rs", "use actix::prelude::*;", "`actix`"),
        ("store/x.rs", "use ::redis::Client;", "`redis`"),
        ("store/x.rs", "use redis;", "`redis`"),
        ("store/x.rs", "fn f(c: &mut redis::Client) {}", "`redis`"),
        ("store/x.rs", "use {std::fs, redis::Client};", "`redis`"),
        ("actors/x.rs", "std::process::exit(1)", "`std::process`"),
        ("chain/x.rs", "use actix_web::http::StatusCode;", "`actix_web::http::StatusCode`"),
        ("domain/x.rs", "use entity::{ids::JobId, job::Model};", "from entity, not job"),
    ];
    for (name, code, rule) in cases {
        let found = faults_of(&[(name, code)]);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].starts_with(name) && found[0].contains(rule), "{code}: {found:?}");
    }
}

#[test]
fn comments_literals_and_tests_are_not_looked_at() {
    let code = r####"
        //! crate::store
        /* crate::store /* std::env */ sea_orm */
        const A: &str = "crate::store \" std::env";
        const B: &str = r#"crate::store " std::env"#;
        const C: (char, char, &[u8]) = ('"', '\'', b"redis::x");
        fn f<'a>(x: &'a str) -> &'a str { x }
        #[cfg(test)]
        use crate::store;
        #[cfg(test)]
        #[path = "odd.rs"]
        mod tests;
        #[cfg(test)]
        mod inline { use crate::store; fn g() { let _ = '{'; } }
    "####;
    let test = "use crate::store;";
    assert_eq!(faults_of(&[("domain/job.rs", code), ("domain/odd.rs", test)]), Vec::<String>::new());
    let after = format!("{code}\nuse crate::store;");
    assert_eq!(faults_of(&[("domain/job.rs", &after)]), ["domain/job.rs:16: domain may not import store"]);
    assert_eq!(faults_of(&[("actors/mod.rs", "#[cfg(test)]\nmod testing;"), ("actors/testing.rs", "use std::env;")]), Vec::<String>::new());
    assert_eq!(faults_of(&[("domain/job.rs", "#[cfg(test)]\nmod tests;"), ("domain/job/tests/a.rs", test)]), Vec::<String>::new());
}

#[test]
fn a_cycle_of_rooms_is_found_from_the_imports_themselves() {
    let found = faults_of(&[("actors/a.rs", "use crate::jobs;"), ("jobs/b.rs", "use crate::actors;"), ("app.rs", "use crate::jobs;")]);
    let cycle: Vec<_> = found.iter().filter(|fault| fault.contains("leads back")).collect();
    assert_eq!(cycle.len(), 2, "{found:?}");
    assert_eq!(cycle[0], "actors/a.rs:1: actors imports jobs, which leads back to actors");
}

#[test]
fn a_long_file_and_an_unknown_room_are_found() {
    let long = "fn f() {}\n".repeat(501);
    assert_eq!(faults_of(&[("store/x.rs", &long)]), ["store/x.rs:501: 501 lines, at most 500"]);
    let tested = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(490), "fn g() {}\n".repeat(400));
    assert_eq!(faults_of(&[("store/x.rs", &tested)]), Vec::<String>::new());
    assert_eq!(faults_of(&[("main.rs", &"fn f() {}\n".repeat(81))]), ["main.rs:81: 81 lines, at most 80"]);
    assert_eq!(faults_of(&[("utils/x.rs", "")]), ["utils/x.rs:1: utils is no room of the map"]);
}
