//! The privileges matrix: which login may do what, read from one file and turned into GRANTs.

const MATRIX: &str = include_str!("privileges.tsv");

/// The columns that an operation covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    None,
    All,
    Some(Vec<&'static str>),
}

/// What one role may do with one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub role: &'static str,
    pub table: &'static str,
    pub select: Columns,
    pub insert: Columns,
    pub update: Columns,
    pub delete: bool,
}

fn columns(text: &'static str) -> Columns {
    match text {
        "-" => Columns::None,
        "*" => Columns::All,
        list => Columns::Some(list.split(',').collect()),
    }
}

/// Every rule of the matrix.
#[must_use]
pub fn rules() -> Vec<Rule> {
    MATRIX
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .filter_map(|line| {
            let [role, table, select, insert, update, delete] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
            Some(Rule { role, table, select: columns(select), insert: columns(insert), update: columns(update), delete: delete == "*" })
        })
        .collect()
}

/// An identifier as SQL wants it.
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The statements that bring `login` to exactly what `role` may do: first everything is taken, from everyone too, since what
/// everyone may do the login may do; then the matrix is granted.
#[must_use]
pub fn statements(role: &str, login: &str) -> Vec<String> {
    let login = quoted(login);
    let mut sql = vec![
        format!("REVOKE ALL ON SCHEMA holdfast FROM {login}, PUBLIC"),
        format!("REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM {login}, PUBLIC"),
        format!("REVOKE ALL ON ALL SEQUENCES IN SCHEMA holdfast FROM {login}, PUBLIC"),
        format!("GRANT USAGE ON SCHEMA holdfast TO {login}"),
    ];
    for rule in rules().into_iter().filter(|rule| rule.role == role) {
        let mut grants = Vec::new();
        for (verb, columns) in [("SELECT", &rule.select), ("INSERT", &rule.insert), ("UPDATE", &rule.update)] {
            match columns {
                Columns::None => {}
                Columns::All => grants.push(verb.to_owned()),
                Columns::Some(list) => grants.push(format!("{verb} ({})", list.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(", "))),
            }
        }
        if rule.delete {
            grants.push("DELETE".into());
        }
        if !grants.is_empty() {
            sql.push(format!("GRANT {} ON holdfast.{} TO {login}", grants.join(", "), quoted(rule.table)));
        }
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_matrix_is_a_rule() {
        let lines = MATRIX.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        assert_eq!(rules().len(), lines);
    }

    #[test]
    fn the_journal_is_append_only_for_the_runtime() {
        let rule = rules().into_iter().find(|rule| rule.table == "tx_attempts").unwrap();
        assert_eq!((rule.update, rule.delete), (Columns::None, false));
    }

    #[test]
    fn jrn_14_operators_see_the_journal_without_its_bytes_and_delete_nothing() {
        let rules: Vec<_> = rules().into_iter().filter(|rule| rule.role == "operator").collect();
        assert!(rules.iter().all(|rule| !rule.delete));
        let journal = rules.iter().find(|rule| rule.table == "tx_attempts").unwrap();
        let Columns::Some(seen) = &journal.select else { panic!("{journal:?}") };
        assert!(!seen.contains(&"ciphertext") && !seen.contains(&"iv"), "{seen:?}");
        assert_eq!((&journal.insert, &journal.update), (&Columns::None, &Columns::None));
    }

    #[test]
    fn a_hostile_login_name_cannot_leave_its_quotes() {
        assert!(statements("runtime", r#"x"; DROP TABLE jobs; --"#).iter().all(|sql| sql.contains(r#""x""; DROP TABLE jobs; --""#)));
    }
}
