//! Owns what a counter, a gauge and a histogram are: a name, a help text and a fixed list of labels, declared once.
//! Never knows which metrics exist. Called by `metrics`, which declares them, and by whatever counts.

use metrics::{Key, KeyName, Label as Pair, Level, Metadata, SharedString, with_recorder};

static METADATA: Metadata<'static> = Metadata::new("holdfast", Level::INFO, None);

/// A label; its values are a closed set that is known here, or come from what the operator configured.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub name: &'static str,
    /// Empty when the configuration decides.
    pub values: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
pub struct Description {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [Label],
}

impl Description {
    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(self.labels.len(), values.len(), "labels of {}", self.name);
        let pairs: Vec<Pair> = self.labels.iter().zip(values).map(|(label, value)| Pair::new(label.name, (*value).to_owned())).collect();
        Key::from_parts(self.name, pairs)
    }

    /// Every combination of label values, or none if a label has no known values.
    fn combinations<'a>(&self, configured: &[(&str, &'a [&'a str])]) -> Vec<Vec<&'a str>> {
        let mut rows: Vec<Vec<&str>> = vec![Vec::new()];
        for label in self.labels {
            let given = configured.iter().find(|(name, _)| *name == label.name).map(|(_, values)| *values);
            let values: &[&str] = given.unwrap_or(label.values);
            rows = rows.iter().flat_map(|row| values.iter().map(move |value| [row.as_slice(), &[*value]].concat())).collect();
        }
        rows
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident),+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub Description);

        impl $name {
            #[must_use]
            pub const fn new(name: &'static str, help: &'static str, labels: &'static [Label]) -> Self {
                Self(Description { name, help, labels })
            }
        }
    )+};
}

kinds! {
    /// Only grows.
    Counter,
    /// The value of now.
    Gauge,
    /// How values are spread, in buckets.
    Histogram
}

impl Counter {
    /// Label values in the order of the declaration.
    pub fn add(&self, number: u64, values: &[&str]) {
        let key = self.0.key(values);
        with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(number));
    }
}

impl Gauge {
    /// Label values in the order of the declaration.
    pub fn set(&self, value: f64, values: &[&str]) {
        let key = self.0.key(values);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA).set(value));
    }
}

impl Histogram {
    /// Label values in the order of the declaration.
    pub fn record(&self, value: f64, values: &[&str]) {
        let key = self.0.key(values);
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA).record(value));
    }
}

/// Any metric, for what has to look at all of them.
#[derive(Clone, Copy, Debug)]
pub enum Metric {
    Counter(&'static Counter),
    Gauge(&'static Gauge),
    Histogram(&'static Histogram),
}

impl Metric {
    #[must_use]
    pub const fn description(self) -> &'static Description {
        match self {
            Self::Counter(metric) => &metric.0,
            Self::Gauge(metric) => &metric.0,
            Self::Histogram(metric) => &metric.0,
        }
    }

    /// The word of the exposition format.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    pub(super) fn describe(self) {
        let Description { name, help, .. } = *self.description();
        let (name, help) = (KeyName::from_const_str(name), SharedString::const_str(help));
        with_recorder(|recorder| match self {
            Self::Counter(_) => recorder.describe_counter(name, None, help),
            Self::Gauge(_) => recorder.describe_gauge(name, None, help),
            Self::Histogram(_) => recorder.describe_histogram(name, None, help),
        });
    }

    /// Lets a counter exist at 0: one that is born at 1 never shows an increase, and its alert never fires.
    pub(super) fn precreate(self, configured: &[(&str, &[&str])]) {
        if let Self::Counter(counter) = self {
            counter.0.combinations(configured).iter().for_each(|values| counter.add(0, values));
        }
    }
}

/// Declares metrics: `counter NAME = "name" { label, label: VALUES } "help";`. Makes a static of each, and `ALL`.
macro_rules! catalogue {
    ($($kind:ident $name:ident = $text:literal { $($label:ident $(: $values:expr)?),* } $help:literal;)+) => {
        $(
            #[doc = $help]
            pub static $name: catalogue!(@type $kind) = <catalogue!(@type $kind)>::new(
                $text,
                $help,
                &[$($crate::telemetry::instrument::Label { name: stringify!($label), values: catalogue!(@values $($values)?) }),*],
            );
        )+

        /// Every metric of the program.
        pub static ALL: &[$crate::telemetry::instrument::Metric] = &[$(catalogue!(@metric $kind $name)),+];
    };
    (@type counter) => { $crate::telemetry::instrument::Counter };
    (@type gauge) => { $crate::telemetry::instrument::Gauge };
    (@type histogram) => { $crate::telemetry::instrument::Histogram };
    (@metric counter $name:ident) => { $crate::telemetry::instrument::Metric::Counter(&$name) };
    (@metric gauge $name:ident) => { $crate::telemetry::instrument::Metric::Gauge(&$name) };
    (@metric histogram $name:ident) => { $crate::telemetry::instrument::Metric::Histogram(&$name) };
    (@values) => { &[] };
    (@values $values:expr) => { &$values };
}
pub(super) use catalogue;
