//! Owns the order in which settings win: embedded config.toml < file < environment < command line, and the strict reading of each value.
//! Never decides what a value means. Called by the sections of this room, each of which reads its own keys through a `Section`.
//!
//! A reader that meets a fault notes it and answers with a harmless value, so that one pass finds all faults.

use super::fault::{Fault, Problem};
use entity::values::Wei;
use secrecy::{ExposeSecret, SecretString};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use toml::{Table, Value};
use zeroize::Zeroizing;

/// The defaults, with one line of meaning per key.
pub const EMBEDDED: &str = include_str!("../../config.toml");

/// Looks up an environment variable.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Settings that beat the environment, under the same names: what the command line gave, and what `dev` started itself.
#[derive(Clone, Debug, Default)]
pub struct Overrides(BTreeMap<&'static str, SecretString>);

impl Overrides {
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.insert(name, SecretString::from(value.into()));
        self
    }
}

pub(super) struct Layers<'a> {
    overrides: &'a Overrides,
    env: &'a Env<'a>,
    file: Table,
    defaults: Table,
    faults: RefCell<Vec<Fault>>,
}

enum Given<'a> {
    Text(Zeroizing<String>),
    Value(&'a Value),
}

/// One group of keys, with the tables that may set them, the strongest first.
pub(super) struct Section<'a> {
    layers: &'a Layers<'a>,
    shown: String,
    tables: Vec<&'a Table>,
    from_env: bool,
}

fn parse(text: &str) -> Result<Table, Problem> {
    text.parse::<Table>().map_err(|error| {
        // The parser's own message quotes the line, and the line may hold a secret.
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        Problem::NotToml { line: 1 + text.bytes().take(at).filter(|b| *b == b'\n').count() }
    })
}

/// A name from a file as it may be shown: a misplaced secret is no name.
fn shown(name: &str) -> &str {
    let plain = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if plain { name } else { "(a key)" }
}

impl<'a> Layers<'a> {
    pub fn new(file: Option<&Path>, env: &'a Env<'a>, overrides: &'a Overrides) -> Self {
        let mut faults = Vec::new();
        let mut note = |name: &str, problem| faults.push(Fault { name: name.into(), problem });
        let defaults = parse(EMBEDDED).unwrap_or_else(|problem| {
            note("config.toml (embedded)", problem);
            Table::new()
        });
        let named = env("HOLDFAST_CONFIG").filter(|v| !v.is_empty());
        let (source, path) = match (file, &named) {
            (Some(path), _) => ("--config", Some(path)),
            (None, named) => ("HOLDFAST_CONFIG", named.as_deref().map(Path::new)),
        };
        let text = path.map(|path| std::fs::read_to_string(path).map(Zeroizing::new).map_err(|e| Problem::Unreadable(e.kind())));
        let file = match text.map(|text| text.and_then(|text| parse(&text))) {
            None => Table::new(),
            Some(Ok(table)) => table,
            Some(Err(problem)) => {
                note(source, problem);
                Table::new()
            }
        };
        let layers = Self { overrides, env, file, defaults, faults: RefCell::new(faults) };
        layers.refuse_unknown_keys();
        layers
    }

    fn refuse_unknown_keys(&self) {
        let known = |section: &str| self.defaults.get(section).and_then(Value::as_table);
        let compare = |name: &str, table: &Table, known: &Table| {
            for key in table.keys().filter(|key| !known.contains_key(*key)) {
                self.fault(format!("{name}.{}", shown(key)), Problem::UnknownKey);
            }
        };
        for (section, value) in &self.file {
            if section == "chains" {
                let entries = value.as_array().map_or(&[] as &[Value], Vec::as_slice);
                if entries.is_empty() || entries.iter().any(|entry| !entry.is_table()) {
                    self.fault("chains", Problem::NotATable);
                }
                for (index, entry) in entries.iter().enumerate() {
                    if let (Some(table), Some(known)) = (entry.as_table(), known("chain")) {
                        compare(&format!("chains[{index}]"), table, known);
                    }
                }
                continue;
            }
            match (value.as_table(), known(section)) {
                (Some(table), Some(known)) => compare(section, table, known),
                (None, Some(_)) => self.fault(section.as_str(), Problem::NotATable),
                (_, None) => self.fault(shown(section), Problem::UnknownKey),
            }
        }
    }

    pub fn fault(&self, name: impl Into<String>, problem: Problem) {
        self.faults.borrow_mut().push(Fault { name: name.into(), problem });
    }

    /// Whether a setting has a fault already, under its variable or its place in a file.
    pub fn is_faulty(&self, name: &str) -> bool {
        self.faults.borrow().iter().any(|fault| fault.name.split(' ').next() == Some(name))
    }

    pub fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }

    fn env(&self, name: &str) -> Option<Zeroizing<String>> {
        // An empty variable is how a compose file or a chart says "not set".
        (self.env)(name).filter(|text| !text.is_empty()).map(Zeroizing::new)
    }

    fn overridden(&self, name: &str) -> Option<Zeroizing<String>> {
        self.overrides.0.get(name).map(|text| Zeroizing::new(text.expose_secret().to_owned()))
    }

    /// What the command line or the environment says, the stronger first.
    pub fn outside(&self, name: &str) -> Option<Zeroizing<String>> {
        self.overridden(name).or_else(|| self.env(name))
    }

    /// What only the program itself may set.
    pub fn inside_flag(&self, name: &str) -> bool {
        self.overridden(name).is_some_and(|text| *text == "true")
    }

    /// Whether the environment sets a variable, itself or by its file.
    pub fn is_set_outside(&self, name: &str) -> bool {
        self.outside(name).is_some() || self.env(&format!("{name}_FILE")).is_some()
    }

    pub fn section(&'a self, name: &str) -> Section<'a> {
        let tables = [&self.file, &self.defaults].into_iter().filter_map(|layer| layer.get(name)?.as_table()).collect();
        Section { layers: self, shown: name.into(), tables, from_env: true }
    }

    /// The chains of the file; each falls back on `[chain]` of the file, then on the defaults. The environment speaks of a single chain.
    pub fn chains(&'a self) -> Vec<Section<'a>> {
        let listed: Vec<&Table> =
            self.file.get("chains").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table).collect();
        let single = listed.len() == 1;
        listed
            .into_iter()
            .enumerate()
            .map(|(index, table)| {
                let mut section = self.section("chain");
                section.tables.insert(0, table);
                section.shown = format!("chains[{index}]");
                section.from_env = single;
                section
            })
            .collect()
    }
}

impl<'a> Section<'a> {
    pub fn layers(&self) -> &'a Layers<'a> {
        self.layers
    }

    fn in_tables(&self, key: &str, name: &str) -> Option<(String, &'a Value)> {
        let value = self.tables.iter().filter_map(|table| table.get(key)).find(|value| value.as_str() != Some(""))?;
        Some((format!("{name} ({}.{key})", self.shown), value))
    }

    fn given(&self, key: &str, name: &str) -> Option<(String, Given<'a>)> {
        if self.from_env
            && let Some(text) = self.layers.outside(name)
        {
            return Some((name.into(), Given::Text(text)));
        }
        self.in_tables(key, name).map(|(name, value)| (name, Given::Value(value)))
    }

    /// The name under which a setting is shown in a fault about its meaning.
    pub fn name_of(&self, key: &str, name: &str) -> String {
        self.given(key, name).map_or_else(|| name.into(), |(name, _)| name)
    }

    /// Whether anything sets it, the file of a secret included.
    pub fn is_given(&self, key: &str, name: &str) -> bool {
        self.from_env && self.layers.is_set_outside(name)
            || self.in_tables(key, name).is_some_and(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty()))
    }

    pub fn text(&self, key: &str, name: &str) -> Option<Zeroizing<String>> {
        let (name, given) = self.given(key, name)?;
        match given {
            Given::Text(text) => Some(text),
            Given::Value(Value::String(text)) => Some(Zeroizing::new(text.clone())),
            Given::Value(_) => {
                self.layers.fault(name, Problem::NotText);
                None
            }
        }
    }

    /// A secret may also be named by a file: NAME_FILE.
    pub fn secret(&self, key: &str, name: &str) -> Option<SecretString> {
        let layers = self.layers;
        if self.from_env && layers.overridden(name).is_none() {
            let pointer = format!("{name}_FILE");
            match (layers.env(name), layers.env(&pointer)) {
                (Some(_), Some(_)) => {
                    layers.fault(name, Problem::BothSet(pointer));
                    return None;
                }
                (None, Some(path)) => return self.secret_from_file(&pointer, Path::new(path.as_str())),
                (_, None) => {}
            }
        }
        self.text(key, name).map(|text| SecretString::from(text.as_str()))
    }

    fn secret_from_file(&self, pointer: &str, path: &Path) -> Option<SecretString> {
        // The path is not shown: a secret put into NAME_FILE by mistake would be.
        match std::fs::read_to_string(path).map(Zeroizing::new) {
            Ok(text) if text.trim().is_empty() => self.layers.fault(pointer, Problem::Required),
            Ok(text) => return Some(SecretString::from(text.trim())),
            Err(error) => self.layers.fault(pointer, Problem::Unreadable(error.kind())),
        }
        None
    }

    /// Comma separated in the environment, a list of strings in a file.
    pub fn secret_list(&self, key: &str, name: &str) -> Vec<SecretString> {
        let from_outside =
            self.from_env && self.layers.is_set_outside(name) || self.in_tables(key, name).is_some_and(|(_, value)| value.is_str());
        if from_outside {
            let text = self.secret(key, name);
            let parts = text.iter().flat_map(|text| text.expose_secret().split(',')).map(str::trim).filter(|part| !part.is_empty());
            return parts.map(SecretString::from).collect();
        }
        let Some((name, value)) = self.in_tables(key, name) else { return Vec::new() };
        let list = value.as_array().and_then(|list| list.iter().map(|item| item.as_str().map(SecretString::from)).collect());
        list.unwrap_or_else(|| {
            self.layers.fault(name, Problem::NotAList);
            Vec::new()
        })
    }

    /// Rows of some texts each: a list of tables in a file, the same as JSON in the environment.
    pub fn records<const N: usize>(&self, key: &str, name: &str, fields: [&'static str; N], shown: &'static str) -> Vec<[String; N]> {
        let Some((name, given)) = self.given(key, name) else { return Vec::new() };
        let rows = match given {
            Given::Text(text) => serde_json::from_str::<Vec<BTreeMap<String, String>>>(&text).ok(),
            Given::Value(value) => value.clone().try_into::<Vec<BTreeMap<String, String>>>().ok(),
        };
        let row = |mut row: BTreeMap<String, String>| {
            let texts = fields.map(|field| row.remove(field));
            let whole = row.is_empty() && texts.iter().all(Option::is_some);
            whole.then(|| texts.map(Option::unwrap_or_default))
        };
        rows.and_then(|rows| rows.into_iter().map(row).collect()).unwrap_or_else(|| {
            self.layers.fault(name, Problem::NotRecords(shown));
            Vec::new()
        })
    }

    /// Integers by name: a table in a file, a JSON object in the environment.
    pub fn integers_by_name(&self, key: &str, name: &str) -> BTreeMap<String, u64> {
        let Some((name, given)) = self.given(key, name) else { return BTreeMap::new() };
        let map = match given {
            Given::Text(text) => serde_json::from_str(&text).ok(),
            Given::Value(value) => value.clone().try_into().ok(),
        };
        map.unwrap_or_else(|| {
            self.layers.fault(name, Problem::NotNumbers);
            BTreeMap::new()
        })
    }

    pub fn integer(&self, key: &str, name: &str, min: u64, max: u64) -> u64 {
        self.sound_integer(key, name, min, max).unwrap_or(min)
    }

    /// None after a fault, for what is compared with another setting: one mistake is one line.
    pub fn sound_integer(&self, key: &str, name: &str, min: u64, max: u64) -> Option<u64> {
        let Some((name, given)) = self.given(key, name) else {
            self.layers.fault(name, Problem::Required);
            return None;
        };
        let number = match given {
            Given::Text(text) => integer_from(&text),
            Given::Value(value) => value.as_integer().and_then(|number| u64::try_from(number).ok()),
        };
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.layers.fault(name, Problem::NotAnInteger { min, max });
        }
        number
    }

    pub fn integer_u32(&self, key: &str, name: &str, min: u32, max: u32) -> u32 {
        u32::try_from(self.integer(key, name, min.into(), max.into())).unwrap_or(max)
    }

    pub fn size(&self, key: &str, name: &str, min: u32, max: u32) -> usize {
        self.integer_u32(key, name, min, max) as usize
    }

    pub fn millis(&self, key: &str, name: &str, min: u64) -> Duration {
        Duration::from_millis(self.integer(key, name, min, DAY_SECONDS * 1000))
    }

    pub fn seconds(&self, key: &str, name: &str, min: u64) -> Duration {
        Duration::from_secs(self.integer(key, name, min, DAY_SECONDS))
    }

    /// None after a fault.
    pub fn sound_wei(&self, key: &str, name: &str) -> Option<Wei> {
        let Some((name, given)) = self.given(key, name) else {
            self.layers.fault(name, Problem::Required);
            return None;
        };
        let amount = match given {
            Given::Text(text) => text.parse().ok(),
            Given::Value(Value::String(text)) => text.parse().ok(),
            Given::Value(value) => value.as_integer().and_then(|number| u64::try_from(number).ok()).map(Wei::from),
        };
        if amount.is_none() {
            self.layers.fault(name, Problem::NotWei);
        }
        amount
    }

    pub fn flag(&self, key: &str, name: &str) -> bool {
        let Some((name, given)) = self.given(key, name) else { return false };
        let flag = match given {
            Given::Text(text) => match text.as_str() {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            },
            Given::Value(value) => value.as_bool(),
        };
        flag.unwrap_or_else(|| {
            self.layers.fault(name, Problem::NotAFlag);
            false
        })
    }

    /// One of a closed set of words.
    pub fn word<T: Copy>(&self, key: &str, name: &str, words: &[(&str, T)], fallback: T) -> T {
        let Some(text) = self.text(key, name) else { return fallback };
        let found = words.iter().find(|(word, _)| *word == text.as_str()).map(|(_, value)| *value);
        found.unwrap_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.layers.fault(self.name_of(key, name), Problem::NotAWord(all.join(", ")));
            fallback
        })
    }

    /// A plain name of at most `max` characters, or None when it is not set.
    pub fn plain_name(&self, key: &str, name: &str, max: usize, extra: &'static str) -> Option<String> {
        let text = self.text(key, name)?;
        if text.len() <= max && text.bytes().all(|b| b.is_ascii_alphanumeric() || extra.as_bytes().contains(&b)) {
            return Some(text.to_string());
        }
        self.layers.fault(self.name_of(key, name), Problem::NotAName { max, extra });
        None
    }
}

const DAY_SECONDS: u64 = 86_400;

/// Digits alone: no sign, no point, no exponent, no blanks.
pub(super) fn integer_from(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}
