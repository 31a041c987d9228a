//! Which server, which schema and which login the program works with, row by row; and what the migration makes of a login.

use crate::support::parts::{self, Database, HOLDFAST, OwnRedis};
use crate::support::process::Process;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, Redis, SOON, Setup, World};
use entity::values::hex_from_bytes;
use migration::{Error, Login, Report};
use secrecy::ExposeSecret;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PASSWORD: &str = "a-password";

/// A database, and a login that no other test has.
struct Ground {
    database: Database,
    login: String,
}

fn with_login(url: &str, login: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    format!("{scheme}://{login}:{password}@{}", rest.rsplit_once('@').expect("a login").1)
}

fn fresh_login() -> String {
    format!("login_{}", parts::serial())
}

async fn migrate_as(owner: &str, login: &str, password: &str) -> Result<Report, Error> {
    let owner = sea_orm::Database::connect(owner).await.expect("the owner");
    let login = Login { role: "runtime", name: login, password };
    let report = migration::migrate(&owner, &[login]).await;
    owner.close().await.expect("closed");
    report
}

async fn say(url: &str, statements: &[&str]) {
    let mut connection = PgConnection::connect(url).await.expect("a login");
    for sql in statements {
        sqlx::query(AssertSqlSafe((*sql).to_owned())).execute(&mut connection).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let _ = connection.close().await;
}

impl Ground {
    async fn new() -> Self {
        Self { database: parts::shared().empty_database().await, login: fresh_login() }
    }

    fn owner(&self) -> &str {
        self.database.owner.expose_secret()
    }

    fn runtime(&self, password: &str) -> String {
        with_login(self.database.runtime.expose_secret(), &self.login, password)
    }

    async fn migrate(&self) -> Result<Report, Error> {
        migrate_as(self.owner(), &self.login, PASSWORD).await
    }

    async fn say(&self, sql: &str) {
        say(self.owner(), &[&sql.replace("LOGIN_", &self.login)]).await;
    }

    async fn text(&self, sql: &str) -> String {
        let mut owner = PgConnection::connect(self.owner()).await.expect("the owner");
        let sql = sql.replace("LOGIN_", &self.login);
        let row = sqlx::query(AssertSqlSafe(sql.clone())).fetch_one(&mut owner).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let text = row.get(0);
        let _ = owner.close().await;
        text
    }

    /// `holdfast db migrate`: its exit code and what it said.
    async fn command(&self, settings: &[(&str, &str)]) -> (i32, String) {
        let environment: BTreeMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // A folder in which no `dev` runs.
        let process = Process::spawn("db migrate", HOLDFAST, ["--data", "/nonexistent", "db", "migrate"], &environment);
        let code = process.exit(SOON).await;
        (code, process.tail())
    }

    async fn end(self) {
        parts::shared().drop_database(&self.database).await;
    }
}

/// The SQLSTATE with which a statement is refused; None when it is done.
async fn refusal(url: &str, sql: &str) -> Option<String> {
    let mut connection = PgConnection::connect(url).await.expect("a login");
    let done = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await;
    let _ = connection.close().await;
    done.err().map(|error| error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned()).unwrap_or_default())
}

#[tokio::test]
async fn mig_01_the_owner_in_database_migration_url_migrates_and_nobody_else_can() {
    let ground = Ground::new().await;
    let (owner, runtime) = (ground.owner().to_owned(), ground.runtime(PASSWORD));
    let migrated = "SELECT coalesce(to_regnamespace('holdfast')::text, 'nothing')";
    let (code, said) = ground.command(&[("DATABASE_URL", &owner)]).await;
    assert_eq!((code, ground.text(migrated).await.as_str()), (2, "nothing"), "{said}");
    assert!(said.contains("DATABASE_MIGRATION_URL is not set"), "{said}");
    let (code, said) = ground.command(&[("DATABASE_URL", &owner), ("DATABASE_MIGRATION_URL", &owner)]).await;
    assert_eq!((code, ground.text(migrated).await.as_str()), (2, "nothing"), "one login for both: {said}");
    let (code, said) = ground.command(&[("DATABASE_URL", &runtime), ("DATABASE_MIGRATION_URL", &owner)]).await;
    assert_eq!((code, ground.text(migrated).await.as_str()), (0, "holdfast"), "{said}");
    // The runtime login with nothing to apply, with something to apply, and for another login.
    let other = with_login(&runtime, &fresh_login(), PASSWORD);
    for (url, before) in
        [(&runtime, "SELECT 1"), (&other, "SELECT 1"), (&other, "DELETE FROM holdfast.schema_migrations WHERE version > 1")]
    {
        ground.say(before).await;
        let history = "SELECT count(*)::text FROM holdfast.schema_migrations";
        let count = ground.text(history).await;
        let (code, said) = ground.command(&[("DATABASE_URL", url), ("DATABASE_MIGRATION_URL", &runtime)]).await;
        assert_eq!((code, ground.text(history).await), (4, count), "{said}");
        assert!(said.contains(&ground.login) && said.contains("may not create"), "{said}");
    }
    ground.end().await;
}

#[tokio::test]
async fn mig_04_the_log_of_the_server_shows_no_password_and_the_verifier_opens_to_sqlx_and_libpq() {
    let ground = Ground::new().await;
    let passwords = ["First-canary 0x5f~'\"$ word", "Second-canary-77"];
    ground.say(&format!("ALTER DATABASE {} SET log_statement = 'all'", ground.database.name)).await;
    for password in passwords {
        migrate_as(ground.owner(), &ground.login, password).await.expect("migrated");
    }
    for (sql, login) in [("CREATE ROLE", &ground.login), ("ALTER ROLE", &ground.login)] {
        eventually(&format!("{sql} stands in the log with a verifier"), SOON, async || {
            let log = parts::shared().postgres_log();
            log.lines().any(|line| line.contains(&format!("{sql} \"{login}\" ")) && line.contains("PASSWORD 'SCRAM-SHA-256$4096:"))
        })
        .await;
    }
    let log = parts::shared().postgres_log();
    for part in ["First-canary", "Second-canary"] {
        assert!(!log.contains(part), "{:?}", log.lines().find(|line| line.contains(part)));
    }
    let runtime = ground.runtime(passwords[1]);
    let mut sqlx = PgConnection::connect(&runtime).await.expect("sqlx logs in");
    let name: String = sqlx::query("SELECT current_user::text").fetch_one(&mut sqlx).await.expect("a name").get(0);
    assert_eq!(name, ground.login);
    sqlx.close().await.expect("closed");
    let bin = parts::programs(&std::env::temp_dir(), false).postgres;
    let libraries = bin.parent().expect("a folder").join("lib").display().to_string();
    for (url, code) in [(&runtime, 0), (&ground.runtime(passwords[0].split(' ').next().unwrap()), 2)] {
        let arguments = [url.as_str(), "-w", "-Atc", "SELECT 'I am ' || current_user"];
        let psql = Process::spawn("psql", bin.join("psql"), arguments, &[("LD_LIBRARY_PATH".to_owned(), libraries.clone())].into());
        assert_eq!(psql.exit(SOON).await, code, "{}", psql.tail());
        eventually("it said who it is", SOON, async || code != 0 || psql.log.has(&format!("I am {}", ground.login))).await;
    }
    let refused = fresh_login();
    for password in ["p\u{e4}ssword", "tab\tword", "new\nline", "", "\u{2168}"] {
        let answer = migrate_as(ground.owner(), &refused, password).await;
        assert!(matches!(&answer, Err(Error::Password(_, login)) if *login == refused), "{password:?}: {answer:?}");
        assert!(answer.unwrap_err().to_string().contains("printable ASCII"));
    }
    assert_eq!(ground.text(&format!("SELECT count(*)::text FROM pg_roles WHERE rolname = '{refused}'")).await, "0");
    ground.end().await;
}

/// The powers of the login, one letter each.
const POWERS: &str =
    "SELECT concat_ws('', CASE WHEN rolsuper THEN 's' END, CASE WHEN rolbypassrls THEN 'b' END, CASE WHEN rolcreaterole THEN 'r' END,
    CASE WHEN rolcreatedb THEN 'd' END, CASE WHEN rolreplication THEN 'p' END, CASE WHEN NOT rolcanlogin THEN '-' END)
    FROM pg_roles WHERE rolname = 'LOGIN_'";

#[tokio::test]
async fn mig_05_powers_that_were_given_by_hand_are_gone_after_a_run() {
    let ground = Ground::new().await;
    ground.migrate().await.expect("migrated");
    assert_eq!(ground.text(POWERS).await, "");
    ground.say("ALTER ROLE LOGIN_ SUPERUSER BYPASSRLS CREATEROLE CREATEDB REPLICATION NOLOGIN").await;
    assert_eq!(ground.text(POWERS).await, "sbrdp-");
    ground.migrate().await.expect("migrated");
    assert_eq!(ground.text(POWERS).await, "");
    assert_eq!(refusal(&ground.runtime(PASSWORD), "SELECT 1 FROM holdfast.jobs").await, None);
    ground.end().await;
}

#[tokio::test]
async fn mig_05_an_admin_without_superuser_migrates_and_names_what_it_may_not_take_away() {
    let ground = Ground::new().await;
    let admin = fresh_login();
    ground.say(&format!("CREATE ROLE {admin} LOGIN CREATEROLE PASSWORD '{PASSWORD}'")).await;
    ground.say(&format!("ALTER DATABASE {} OWNER TO {admin}", ground.database.name)).await;
    let admin = with_login(ground.owner(), &admin, PASSWORD);
    let first = migrate_as(&admin, &ground.login, PASSWORD).await.expect("migrated");
    assert_eq!(first.applied.len(), migration::MIGRATIONS.len());
    migrate_as(&admin, &ground.login, PASSWORD).await.expect("nothing to do");
    ground.say("ALTER ROLE LOGIN_ CREATEROLE").await;
    migrate_as(&admin, &ground.login, PASSWORD).await.expect("it may take away what it has itself");
    assert_eq!(ground.text(POWERS).await, "");
    for power in ["SUPERUSER", "BYPASSRLS", "REPLICATION"] {
        ground.say(&format!("ALTER ROLE LOGIN_ {power}")).await;
        let answer = migrate_as(&admin, &ground.login, PASSWORD).await;
        assert!(matches!(&answer, Err(Error::Attribute { attribute, .. }) if *attribute == power), "{answer:?}");
        ground.say(&format!("ALTER ROLE LOGIN_ NO{power}")).await;
        migrate_as(&admin, &ground.login, PASSWORD).await.expect("migrated again");
    }
    ground.end().await;
}

#[tokio::test]
async fn mig_05_a_runtime_login_that_owns_anything_is_refused_by_the_name_of_the_thing() {
    let (ground, beside) = (Ground::new().await, Ground::new().await);
    ground.migrate().await.expect("migrated");
    let here = ground.database.name.clone();
    let things = [
        ("TABLE holdfast.jobs", "table holdfast.jobs".to_owned()),
        ("SCHEMA holdfast", "schema holdfast".to_owned()),
        ("SEQUENCE loose.numbers", "sequence loose.numbers".to_owned()),
        ("VIEW loose.seen", "view loose.seen".to_owned()),
        ("FUNCTION loose.act()", "function loose.act()".to_owned()),
        ("TYPE loose.kind", "type loose.kind".to_owned()),
        ("LARGE OBJECT 4711", "large object 4711".to_owned()),
        (&format!("DATABASE {here}"), format!("database {here}")),
    ];
    for sql in [
        "CREATE SCHEMA loose",
        "CREATE SEQUENCE loose.numbers",
        "CREATE VIEW loose.seen AS SELECT 1 AS one",
        "CREATE FUNCTION loose.act() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE loose.kind AS ENUM ('a')",
        "SELECT lo_create(4711)",
    ] {
        ground.say(sql).await;
    }
    let owner = ground.text("SELECT current_user::text").await;
    for (thing, name) in &things {
        ground.say(&format!("ALTER {thing} OWNER TO LOGIN_")).await;
        let answer = ground.migrate().await;
        assert!(matches!(&answer, Err(Error::Owner { login, object }) if *login == ground.login && object == name), "{thing}: {answer:?}");
        ground.say(&format!("ALTER {thing} OWNER TO {owner}")).await;
        ground.migrate().await.unwrap_or_else(|error| panic!("after {thing}: {error}"));
    }
    beside.say("CREATE TABLE public.elsewhere (id int)").await;
    beside.say(&format!("ALTER TABLE public.elsewhere OWNER TO {}", ground.login)).await;
    let answer = ground.migrate().await.expect_err("it owns a table of another database");
    assert!(answer.to_string().contains(&beside.database.name), "{answer}");
    beside.end().await;
    ground.migrate().await.expect("migrated");
    ground.end().await;
}

#[tokio::test]
async fn mig_06_a_login_that_is_a_member_of_any_role_is_refused_by_the_name_of_the_role() {
    let ground = Ground::new().await;
    ground.migrate().await.expect("migrated");
    let group = fresh_login();
    ground.say(&format!("CREATE ROLE {group}")).await;
    for (grant, name) in [
        (group.clone(), group.as_str()),
        (format!("{group} WITH INHERIT FALSE, SET FALSE"), group.as_str()),
        ("pg_read_all_data".to_owned(), "pg_read_all_data"),
    ] {
        let (role, options) = grant.split_once(" WITH ").map_or((grant.as_str(), String::new()), |(role, o)| (role, format!(" WITH {o}")));
        ground.say(&format!("GRANT {role} TO LOGIN_{options}")).await;
        ground.say("ALTER ROLE LOGIN_ NOINHERIT").await;
        let answer = ground.migrate().await;
        assert!(matches!(&answer, Err(Error::Member { login, group }) if *login == ground.login && group == name), "{grant}: {answer:?}");
        let (code, said) = ground.command(&[("DATABASE_URL", &ground.runtime(PASSWORD)), ("DATABASE_MIGRATION_URL", ground.owner())]).await;
        assert!(code == 4 && said.contains(name), "{code}: {said}");
        ground.say(&format!("REVOKE {role} FROM LOGIN_")).await;
        ground.migrate().await.expect("migrated");
    }
    ground.end().await;
}

#[tokio::test]
async fn mig_08_what_was_granted_by_hand_on_history_and_metadata_is_gone_after_a_run() {
    let ground = Ground::new().await;
    ground.migrate().await.expect("migrated");
    let runtime = ground.runtime(PASSWORD);
    let forbidden = [
        "UPDATE holdfast.operator_actions SET reason = 'x'",
        "DELETE FROM holdfast.operator_actions",
        "TRUNCATE holdfast.operator_actions",
        "UPDATE holdfast.signer_history SET actor = 'x'",
        "DELETE FROM holdfast.signer_history",
        "TRUNCATE holdfast.signer_history",
        "UPDATE holdfast.tx_attempts SET ordinal = 1",
        "DELETE FROM holdfast.tx_attempts",
        "INSERT INTO holdfast.schema_migrations (version, name, checksum) SELECT 99, 'x', 'x' WHERE false",
        "UPDATE holdfast.schema_migrations SET name = 'x' WHERE false",
        "DELETE FROM holdfast.schema_migrations WHERE false",
    ];
    let refused = async |when: &str| {
        for sql in forbidden {
            assert_eq!(refusal(&runtime, sql).await.as_deref(), Some("42501"), "{when}: {sql}");
        }
    };
    refused("after the first run").await;
    let tables = "holdfast.operator_actions, holdfast.signer_history, holdfast.tx_attempts, holdfast.schema_migrations";
    for (what, to) in [(format!("ALL ON {tables}"), "LOGIN_"), (format!("ALL ON {tables}"), "PUBLIC")] {
        ground.say(&format!("GRANT {what} TO {to}")).await;
        for sql in forbidden {
            assert_eq!(refusal(&runtime, sql).await, None, "granted to {to}: {sql}");
        }
        ground.migrate().await.expect("migrated");
        refused(to).await;
    }
    // By column, and on the schema itself.
    for to in ["LOGIN_", "PUBLIC"] {
        ground.say(&format!("GRANT UPDATE (reason) ON holdfast.operator_actions TO {to}")).await;
        ground.say(&format!("GRANT CREATE ON SCHEMA holdfast TO {to}")).await;
        let made = "CREATE TABLE holdfast.mine (id int)";
        assert_eq!((refusal(&runtime, forbidden[0]).await, refusal(&runtime, made).await), (None, None), "granted to {to}");
        ground.say("DROP TABLE holdfast.mine").await;
        ground.migrate().await.expect("migrated");
        assert_eq!(refusal(&runtime, made).await.as_deref(), Some("42501"), "{to}");
        refused(to).await;
    }
    assert_eq!(refusal(&runtime, "SELECT 1 FROM holdfast.operator_actions").await, None, "it still has what the matrix gives");
    ground.end().await;
}

/// What /readyz answers: its status, the checks that fail, and the text.
async fn readiness(world: &World, at: &Instance) -> Option<(u16, BTreeSet<String>, String)> {
    let answer = world.client.get(format!("{}/readyz", at.admin)).timeout(Duration::from_secs(3)).send().await.ok()?;
    let (status, text) = (answer.status().as_u16(), answer.text().await.ok()?);
    let body: Value = serde_json::from_str(&text).ok()?;
    let failed = body["checks"].as_array()?.iter().filter(|check| check["ok"] == false);
    Some((status, failed.filter_map(|check| check["name"].as_str().map(str::to_owned)).collect(), text))
}

/// Waits until readiness names this check and says why; gives all that fail then.
async fn until_unready(world: &World, at: &Instance, check: &str, why: &str) -> BTreeSet<String> {
    found(&format!("/readyz names {check}: {why}"), SOON, async || {
        let (status, failed, text) = readiness(world, at).await?;
        (status == 503 && failed.contains(check) && text.contains(why)).then_some(failed)
    })
    .await
}

/// The same, and none of the other parts is named.
async fn until_only(world: &World, at: &Instance, check: &str, why: &str) {
    let failed = until_unready(world, at, check, why).await;
    assert!(!["postgres", "schema", "redis"].into_iter().any(|other| other != check && failed.contains(other)), "{check}: {failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_34_readiness_names_postgres_redis_or_the_schema_and_recovers_by_itself() {
    let redis = Redis::Own(OwnRedis::start().await);
    let world = World::with(Setup { postgres_proxy: true, redis, ..Setup::default() }.with("DB_CONNECTION_TIMEOUT", 1_000)).await;
    let all = world.serve("all", &[]).await;
    let postgres = world.postgres.as_ref().expect("a proxy");
    postgres.refuse(true).await;
    postgres.reset();
    until_only(&world, &all, "postgres", "not reachable").await;
    postgres.heal().await;
    world.until_ready(&all).await;
    {
        let mut redis = world.redis.as_ref().expect("its own").lock().await;
        redis.stop().await;
        until_only(&world, &all, "redis", "").await;
        redis.start_again().await;
    }
    world.until_ready(&all).await;
    let newer = migration::EXPECTED + 1;
    let owner = world.database.owner.expose_secret();
    let versions = [
        (format!("INSERT INTO holdfast.schema_migrations (version, name, checksum) VALUES ({newer}, 'next', 'x')"), newer),
        (format!("DELETE FROM holdfast.schema_migrations WHERE version >= {}", migration::EXPECTED), migration::EXPECTED - 1),
    ];
    for (change, found) in versions {
        say(owner, &["CREATE TABLE kept AS TABLE holdfast.schema_migrations", &change]).await;
        until_only(&world, &all, "schema", &format!("the schema is at version {found}, this program needs {}", migration::EXPECTED)).await;
        let back = ["DELETE FROM holdfast.schema_migrations", "INSERT INTO holdfast.schema_migrations TABLE kept", "DROP TABLE kept"];
        say(owner, &back).await;
        world.until_ready(&all).await;
    }
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "completed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_05_a_server_below_the_floor_is_neither_migrated_nor_served_on() {
    let world = World::start().await;
    let (owner, name) = (world.database.owner.expose_secret(), &world.database.name);
    // The same server, which answers what one of version 15 would: a function of that name before those of the system.
    say(
        owner,
        &[
            "CREATE SCHEMA old",
            "GRANT USAGE ON SCHEMA old TO PUBLIC",
            "CREATE FUNCTION old.current_setting(text) RETURNS text LANGUAGE sql STABLE AS
             $$ SELECT CASE $1 WHEN 'server_version_num' THEN '150014' ELSE pg_catalog.current_setting($1) END $$",
            &format!("ALTER DATABASE {name} SET search_path = old, pg_catalog"),
        ],
    )
    .await;
    let login = fresh_login();
    let refused = migrate_as(owner, &login, PASSWORD).await;
    assert!(matches!(refused, Err(Error::TooOld { found: 15 })), "{refused:?}");
    let all = world.launch("all", &[]);
    until_unready(&world, &all, "postgres", "PostgreSQL 15 is too old: 16 or newer is needed").await;
    let startupz = world.client.get(format!("{}/startupz", all.admin)).send().await.expect("an answer");
    assert_eq!(startupz.status(), 503);
    assert!(world.client.get(format!("{}/v1/jobs", all.http)).send().await.is_err(), "callers are not served");
    assert_eq!(world.count("workers").await, 0);
    assert!(all.is_alive(), "{}", all.tail());
    say(
        owner,
        &[
            &format!("ALTER DATABASE {name} RESET search_path"),
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = current_database()",
        ],
    )
    .await;
    world.until_ready(&all).await;
    let version: String = world.scalar("SELECT current_setting('server_version_num')").await;
    let told = all.log.lines().into_iter().find(|line| line.contains("\"database_found\"")).expect("the version is told");
    assert!(told.contains(&format!("\"server_version_num\":{version}")), "{told}");
    migrate_as(owner, &login, PASSWORD).await.expect("migrated");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_16_a_login_that_owns_the_schema_or_may_create_in_it_is_refused_at_start() {
    let world = World::start().await;
    let owner = world.database.owner.expose_secret();
    let login = fresh_login();
    let mine = with_login(world.database.runtime.expose_secret(), &login, PASSWORD);
    migrate_as(owner, &login, PASSWORD).await.expect("a runtime login");
    let name: String = world.scalar("SELECT current_user::text").await;
    let group = fresh_login();
    let say = async |statements: &[String]| say(owner, &statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
    say(&[format!("CREATE ROLE {group}")]).await;
    let to_login = format!("ALTER SCHEMA holdfast OWNER TO {login}");
    let back = format!("ALTER SCHEMA holdfast OWNER TO {name}");
    let cases = [
        (
            "it may create",
            vec![format!("GRANT CREATE ON SCHEMA holdfast TO {login}")],
            vec![format!("REVOKE CREATE ON SCHEMA holdfast FROM {login}")],
        ),
        (
            "everyone may create",
            vec!["GRANT CREATE ON SCHEMA holdfast TO PUBLIC".into()],
            vec!["REVOKE CREATE ON SCHEMA holdfast FROM PUBLIC".into()],
        ),
        ("it owns", vec![to_login.clone()], vec![back.clone()]),
        ("it owns and gave CREATE away", vec![to_login, format!("REVOKE CREATE ON SCHEMA holdfast FROM {login}")], vec![back.clone()]),
        (
            "it can become the owner",
            vec![format!("ALTER SCHEMA holdfast OWNER TO {group}"), format!("GRANT {group} TO {login} WITH INHERIT FALSE")],
            vec![back, format!("REVOKE {group} FROM {login}")],
        ),
        ("it is a superuser", vec![format!("ALTER ROLE {login} SUPERUSER")], vec![format!("ALTER ROLE {login} NOSUPERUSER")]),
    ];
    let refused = async |what: &str, url: &str| {
        let process = world.launch("all", &[("DATABASE_URL", url)]);
        let ended = async || process.status().and_then(|status| status.code());
        let code = found(&format!("refused: {what}"), SOON, ended).await;
        assert_eq!(code, 4, "{what}: {}", process.tail());
        eventually("its last line was read", SOON, async || process.log.has("owns schema holdfast or may create in it")).await;
    };
    refused("the owner itself", owner).await;
    for (what, give, take) in cases {
        say(&give).await;
        refused(what, &mine).await;
        say(&take).await;
        // With the ownership its own rights have gone to the next owner.
        migrate_as(owner, &login, PASSWORD).await.expect("its rights are those of the matrix again");
    }
    assert_eq!((world.count("workers").await, world.count("lanes").await), (0, 0), "nothing was done under such a login");
    world.serve("all", &[("DATABASE_URL", &mine)]).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_25_every_replica_lists_the_addresses_of_all_signers_and_never_a_key() {
    let world = World::with(Setup { lanes: 2, ..Setup::default() }).await;
    world.serve("all", &[("INSTANCE_ID", "first")]).await;
    world.serve("relayer", &[("INSTANCE_ID", "second")]).await;
    let addresses: BTreeSet<String> = world.signers.iter().map(|signer| hex_from_bytes(&signer.address.0)).collect();
    assert_eq!(addresses.len(), 2);
    for instance in ["first", "second"] {
        let sql = format!("SELECT '0x' || encode(unnest(signers), 'hex') FROM holdfast.workers WHERE instance = '{instance}'");
        let listed = world.rows(&sql).await;
        assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>()), (2, addresses.clone()), "{instance}");
    }
    let rows = world.rows("SELECT w::text AS row FROM holdfast.workers w").await.join("\n");
    for secret in world.secrets() {
        assert!(!rows.contains(secret.trim_start_matches("0x")), "a secret is in the workers table");
    }
    world.finish().await;
}
