//! The schema: bringing it to what this program needs, and saying in what it differs. The service itself never changes it.

use super::{Desk, Error};
use crate::store::facts;
use crate::store::owner;
use migration::Login;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::collections::BTreeMap;

/// The roles of the privileges matrix: the service, and the commands of operators.
const RUNTIME: &str = "runtime";
const OPERATOR: &str = "operator";

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Migrated {
    pub version: i32,
    pub applied: Vec<i32>,
    /// Created, or brought to the privileges matrix.
    pub logins: Vec<String>,
}

/// Migrates as the owner, and makes the login of `runtime` the runtime login and that of `operator` the login of operators, with their
/// passwords.
///
/// # Errors
/// `Invalid` when a URL has no user or no password, or both name one login; what the server refuses is named.
pub async fn migrate(owner: &SecretString, runtime: &SecretString, operator: Option<&SecretString>) -> Result<Migrated, Error> {
    let login = |variable, url| {
        let told = "must name the user and the password of its login: postgres://USER:PASSWORD@HOST/DATABASE";
        login_of(url).ok_or_else(|| Error::Invalid(variable, told.into()))
    };
    let (name, password) = login("DATABASE_URL", runtime)?;
    let operator = operator.map(|url| login("DATABASE_OPERATOR_URL", url)).transpose()?;
    if operator.as_ref().is_some_and(|(other, _)| *other == name) {
        return Err(Error::Invalid("DATABASE_OPERATOR_URL", "names the login of the service: operators need one of their own".into()));
    }
    let mut logins = vec![Login { role: RUNTIME, name: &name, password: password.expose_secret() }];
    logins.extend(operator.iter().map(|(name, password)| Login { role: OPERATOR, name, password: password.expose_secret() }));
    let report = owner::migrate(owner, &logins).await?;
    Ok(Migrated { version: migration::EXPECTED, applied: report.applied, logins: report.logins })
}

/// The user and the password of a URL, decoded.
fn login_of(url: &SecretString) -> Option<(String, SecretString)> {
    let (_, rest) = url.expose_secret().split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (login, _) = authority.rsplit_once('@')?;
    let (user, password) = login.split_once(':')?;
    let (user, password) = (decoded(user)?, decoded(password)?);
    (!user.is_empty() && !password.is_empty()).then(|| (user, SecretString::from(password)))
}

/// Undoes percent-encoding; None when it is malformed.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The schema against this program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub expected: i32,
    /// Null when nothing was ever migrated.
    pub found: Option<i32>,
    /// One line each; none when they are equal.
    pub differences: Vec<String>,
}

/// Compares versions and checksums.
///
/// # Errors
/// See [`Error`].
pub async fn check(desk: &Desk) -> Result<Comparison, Error> {
    let db = desk.reader();
    let applied = match facts::server(&db).await?.schema {
        Some(_) => facts::checksums(&db).await?,
        None => Vec::new(),
    };
    Ok(compare(&applied))
}

fn compare(applied: &[(i32, String)]) -> Comparison {
    let applied: BTreeMap<i32, &str> = applied.iter().map(|(version, sum)| (*version, sum.as_str())).collect();
    let mut differences = Vec::new();
    for migration in migration::MIGRATIONS {
        match applied.get(&migration.version) {
            None => differences.push(format!("migration {} ({}) is not applied", migration.version, migration.name)),
            Some(sum) if *sum != migration.checksum() => {
                differences
                    .push(format!("migration {} ({}) was applied with another text: checksum {sum}", migration.version, migration.name));
            }
            Some(_) => {}
        }
    }
    let newer = applied.keys().filter(|version| **version > migration::EXPECTED);
    differences.extend(newer.map(|version| format!("migration {version} is newer than this program")));
    Comparison { expected: migration::EXPECTED, found: applied.keys().next_back().copied(), differences }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(url: &str) -> Option<(String, String)> {
        login_of(&SecretString::from(url)).map(|(user, password)| (user, password.expose_secret().to_owned()))
    }

    #[test]
    fn the_login_is_read_from_the_url_and_decoded() {
        let some = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(login("postgres://app:s3cret@db:5432/holdfast"), some("app", "s3cret"));
        assert_eq!(login("postgres://a%40b:p%2Fq%3A%c3%a9@db/holdfast?sslmode=require"), some("a@b", "p/q:é"));
        assert_eq!(login("postgres://app:a:b@db/x"), some("app", "a:b"));
        for without in [
            "postgres://db/holdfast",
            "postgres://app@db/x",
            "postgres://:p@db/x",
            "postgres://app:@db/x",
            "postgres://app:%zz@db/x",
            "app:p@db",
        ] {
            assert_eq!(login(without), None, "{without}");
        }
    }

    #[test]
    fn a_schema_differs_by_what_is_missing_changed_or_newer() {
        let whole: Vec<_> = migration::MIGRATIONS.iter().map(|m| (m.version, m.checksum())).collect();
        assert_eq!(compare(&whole), Comparison { expected: migration::EXPECTED, found: Some(migration::EXPECTED), differences: vec![] });
        let none = compare(&[]);
        assert_eq!((none.found, none.differences.len()), (None, migration::MIGRATIONS.len()));
        assert!(compare(&[(1, "other".into())]).differences[0].contains("another text"));
        let mut newer = whole;
        newer.push((migration::EXPECTED + 1, "x".into()));
        assert_eq!(compare(&newer).differences, [format!("migration {} is newer than this program", migration::EXPECTED + 1)]);
    }
}
