//! Owns the words for what can be wrong with a configuration. Never holds or shows a value that was set: a value may be a secret.
//! Called by every file of this room; read by `cli`, which prints the lines and exits with the code for configuration.

use std::fmt;

/// One thing that is wrong, under the name of the variable that has to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct Fault {
    pub name: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("must be an integer from {min} to {max}")]
    NotAnInteger { min: u64, max: u64 },
    #[error("must be a decimal integer from 0 to 2^256-1")]
    NotWei,
    #[error("must be true or false")]
    NotAFlag,
    #[error("must be a string")]
    NotText,
    #[error("must be a list of strings")]
    NotAList,
    #[error("must be a list of tables, each with the texts {0} and nothing else (in the environment as JSON)")]
    NotRecords(&'static str),
    #[error("row {row}: the pattern is no regular expression of at most 64 KiB when compiled")]
    NotAPattern { row: usize },
    #[error("row {row}: the class must be one of {classes}")]
    NotAClass { row: usize, classes: String },
    #[error("must be a table of names and integers (in the environment as a JSON object)")]
    NotNumbers,
    #[error(
        "is not ADDRESS/CALL: a contract's address, a slash and the data of a call as 0x and hex digits with {{signer}} in the place of an argument"
    )]
    NotAMembership,
    #[error("must name addresses, each with a width from 1 to {max}")]
    NotAWidth { max: u32 },
    #[error("must be one of {0}")]
    NotAWord(String),
    #[error("must be a level ({0}) or, by commas, parts with theirs such as info,holdfast=debug")]
    NotALevel(String),
    #[error("must have at least {0} characters")]
    TooShort(usize),
    #[error("must be an address and port such as 127.0.0.1:8080")]
    NotASocketAddress,
    #[error("must be 1 to {max} letters, digits or characters of {extra}")]
    NotAName { max: usize, extra: &'static str },
    #[error("must not be greater than {0}")]
    Above(&'static str),
    #[error("is set together with {0}: set one of them")]
    BothSet(String),
    #[error("differs from {0}, which is another name for the same setting")]
    AliasDiffers(&'static str),
    #[error("the file it names cannot be read ({0})")]
    Unreadable(std::io::ErrorKind),
    #[error("is not valid TOML at line {line}")]
    NotToml { line: usize },
    #[error("is no known key")]
    UnknownKey,
    #[error("must be a table")]
    NotATable,
    #[error("must be a URL that begins with {0} and names a host")]
    NotAUrl(&'static str),
    #[error("is required because {0} is set: the two are set together or not at all")]
    PairIncomplete(&'static str),
    #[error("is required because INFRASTRUCTURE_REQUIRED is true")]
    InfrastructureRequired,
    #[error("is required")]
    Required,
    #[error("is required by role {0}")]
    RequiredByRole(&'static str),
    #[error("is required because {0} is set")]
    RequiredBy(&'static str),
    #[error("must not be present in role {0}, which holds no keys")]
    KeysRefused(&'static str),
    #[error("voters {first} and {second} of chain {chain} are on the same host: a host has one vote")]
    DuplicateHost { chain: u64, first: usize, second: usize },
    #[error("live local signers need read endpoints on at least three distinct hosts; chain {chain} has {found}")]
    TooFewHosts { chain: u64, found: usize },
    #[error("speaks of one chain, but the file lists {0}: set it in [[chains]]")]
    AmbiguousChain(usize),
    #[error("chain {0} is listed twice")]
    DuplicateChain(u64),
    #[error(transparent)]
    Journal(#[from] super::journal::Error),
    #[error(transparent)]
    Remote(#[from] super::remote::Error),
    #[error(transparent)]
    Signers(#[from] super::signers::Error),
}

/// Everything that is wrong, found in one pass. Displays one line per fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
