//! What clients see of the public listener, over doors without Postgres.

use super::testing::{Stage, stage, view};
use super::*;
use crate::store::jobs::TransactionView;
use actix_web::body::BoxBody;
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::web::{self, Data};
use actix_web::{App, Error};
use entity::states::LineageState;
use entity::values::{Address, Hash, Wei};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Status, headers and body of an answer.
struct Seen {
    status: u16,
    headers: actix_web::http::header::HeaderMap,
    body: Value,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and code of a problem whose form is right.
    fn problem(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.body);
        assert_eq!(self.body["request_id"], self.header("x-request-id"));
        assert_eq!(self.body["status"], self.status);
        (self.status, self.body["code"].as_str().unwrap())
    }
}

async fn ask(stage: &Stage, request: TestRequest) -> Seen {
    let app = App::new()
        .wrap(from_fn(access::around))
        .app_data(Data::new(stage.public.clone()))
        .configure(routes::public)
        .default_service(web::to(server::nothing_here));
    let app = init_service(app).await;
    see(&app, request.to_request()).await
}

async fn see<S, R>(app: &S, request: R) -> Seen
where
    S: Service<R, Response = ServiceResponse<BoxBody>, Error = Error>,
{
    let response = call_service(app, request).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = read_body(response).await;
    Seen {
        status,
        headers,
        body: if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap_or(json!(String::from_utf8_lossy(&body))) },
    }
}

fn get(stage: &Stage, path: &str) -> TestRequest {
    TestRequest::get().uri(path).insert_header(("authorization", format!("Bearer {}", stage.key)))
}

fn post(stage: &Stage, path: &str) -> TestRequest {
    TestRequest::post().uri(path).insert_header(("authorization", format!("Bearer {}", stage.key)))
}

fn submission(stage: &Stage, key: &str, body: &Value) -> TestRequest {
    post(stage, "/v1/jobs").insert_header(("idempotency-key", key)).set_json(body)
}

fn job() -> Value {
    json!({"kind": "contract_call", "chain_id": 31337, "pool": "local:relayer", "to": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "data": "0x01", "metadata": {"b": 1, "a": 2}})
}

#[actix_web::test]
async fn a_new_job_is_accepted_and_told_as_it_was_committed() {
    let stage = stage();
    let seen = ask(&stage, submission(&stage, "k", &job())).await;
    assert_eq!(seen.status, 202, "{}", seen.body);
    let id = seen.body["id"].as_str().unwrap();
    assert_eq!(seen.header("location"), format!("/v1/jobs/{id}"));
    let expected = json!({
        "id": id, "kind": "contract_call", "state": "queued", "chain_id": 31337, "created_at": "2030-01-02T03:04:05.678Z",
        "updated_at": "2030-01-02T03:04:05.678Z", "cancellation": null, "attempts": 0, "priority": 50, "transaction": null, "error": null, "metadata": {"a": 2, "b": 1},
    });
    assert_eq!(seen.body, expected);
    let read = ask(&stage, get(&stage, seen.header("location"))).await;
    assert_eq!((read.status, &read.body), (200, &expected));
    assert_eq!(read.header("etag"), seen.header("etag"));
}

#[actix_web::test]
async fn the_same_key_gets_the_same_body_again_and_another_payload_is_refused() {
    let stage = stage();
    let first = ask(&stage, submission(&stage, "k", &job())).await;
    let again = ask(&stage, submission(&stage, "k", &job())).await;
    assert_eq!((again.status, again.header("idempotency-replayed"), &again.body), (200, "true", &first.body));
    assert_eq!((first.header("idempotency-replayed"), first.header("location")), ("", again.header("location")));
    let mut other = job();
    other["value"] = json!("1");
    assert_eq!(ask(&stage, submission(&stage, "k", &other)).await.problem(), (422, "idempotency-key-mismatch"));
    let beta = submission(&stage, "k", &other).insert_header(("authorization", format!("Bearer {}", stage.other)));
    assert_eq!(ask(&stage, beta).await.status, 202, "keys belong to their project");
}

#[actix_web::test]
async fn requests_that_cannot_be_read_are_refused_with_their_own_status() {
    let stage = stage();
    let keyed = |body: &'static str| {
        post(&stage, "/v1/jobs")
            .insert_header(("idempotency-key", "k"))
            .insert_header(("content-type", "application/json"))
            .set_payload(body)
    };
    assert_eq!(ask(&stage, keyed("{")).await.problem(), (400, "malformed-json"));
    assert_eq!(ask(&stage, keyed("")).await.problem(), (400, "malformed-json"));
    assert_eq!(ask(&stage, keyed(r#"{"kind":"a","kind":"b"}"#)).await.problem(), (400, "malformed-json"));
    assert_eq!(ask(&stage, keyed("{}").insert_header(("content-type", "text/plain"))).await.problem(), (415, "unsupported-media-type"));
    assert_eq!(ask(&stage, keyed("{}").insert_header(("content-encoding", "gzip"))).await.problem(), (415, "unsupported-media-type"));
    let large = post(&stage, "/v1/jobs").insert_header(("idempotency-key", "k")).set_json("x".repeat(256 * 1024));
    assert_eq!(ask(&stage, large).await.problem(), (413, "body-too-large"));
    assert_eq!(ask(&stage, post(&stage, "/v1/jobs").set_json(job())).await.problem(), (400, "idempotency-key-missing"));
    for key in ["", " ", &"x".repeat(256), "caf\u{e9}"] {
        assert_eq!(ask(&stage, submission(&stage, key, &job())).await.problem(), (400, "idempotency-key-invalid"), "{key}");
    }
    assert_eq!(ask(&stage, submission(&stage, &"x".repeat(255), &job())).await.status, 202);
    assert_eq!(stage.behind.lock().unwrap().commits, 1);
}

#[actix_web::test]
async fn every_faulty_field_is_named_and_nothing_is_accepted() {
    let stage = stage();
    let mut body = job();
    body["value"] = json!(5);
    body["pool"] = json!("nope");
    body["surprise"] = json!(1);
    let seen = ask(&stage, submission(&stage, "k", &body)).await;
    assert_eq!(seen.problem(), (400, "invalid-request"));
    let pointers: Vec<_> = seen.body["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/surprise", "/pool", "/value"]);
    assert_eq!(stage.behind.lock().unwrap().commits, 0);
}

#[actix_web::test]
async fn a_body_with_more_faults_than_anybody_reads_is_answered_with_the_first_twenty_and_their_number() {
    let stage = stage();
    let mut body = job();
    for number in 0..4_000 {
        body[format!("x{number}")] = json!(1);
    }
    let seen = ask(&stage, submission(&stage, "k", &body)).await;
    assert_eq!(seen.problem(), (400, "invalid-request"));
    assert_eq!((seen.body["errors"].as_array().unwrap().len(), &seen.body["errors_total"]), (20, &json!(4_000)));
    assert_eq!(seen.body["detail"], "4000 fields are not valid; these are the first 20");
}

#[actix_web::test]
async fn a_cancellation_takes_no_body_that_says_something() {
    let stage = stage();
    let id = JobId(uuid::Uuid::from_u128(7));
    stage.behind.lock().unwrap().jobs.push(view(id, "alpha", JobState::Cancelled));
    stage.behind.lock().unwrap().cancelled = Some(Cancelled::Done);
    let cancel = || post(&stage, &format!("/v1/jobs/{id}/cancel"));
    for empty in [cancel(), cancel().set_json(json!({}))] {
        assert_eq!(ask(&stage, empty).await.status, 200);
    }
    let told = ask(&stage, cancel().set_json(json!({"at": 1}))).await;
    assert_eq!((told.problem(), &told.body["errors"][0]["pointer"]), ((400, "invalid-request"), &json!("/at")));
    assert_eq!(ask(&stage, cancel().set_json(json!([]))).await.problem(), (400, "invalid-request"));
    let json = cancel().insert_header(("content-type", "application/json"));
    assert_eq!(ask(&stage, json.set_payload("junk")).await.problem(), (400, "malformed-json"));
    assert_eq!(ask(&stage, cancel().set_payload("junk")).await.problem(), (415, "unsupported-media-type"));
}

#[actix_web::test]
async fn no_route_answers_without_a_key_and_none_says_why() {
    let stage = stage();
    let stranger = crate::domain::api_key::mint("live").unwrap();
    for (method, path) in [
        (Method::POST, "/v1/jobs"),
        (Method::GET, "/v1/jobs"),
        (Method::POST, "/v1/jobs/batch"),
        (Method::GET, "/v1/jobs/x"),
        (Method::POST, "/v1/jobs/x/cancel"),
    ] {
        let bare = || TestRequest::default().method(method.clone()).uri(path);
        let none = ask(&stage, bare()).await;
        assert_eq!(none.problem(), (401, "unauthorized"));
        assert!(none.header("www-authenticate").starts_with("Bearer"));
        for value in [format!("Bearer {}", *stranger.plaintext), "Bearer x".into(), format!("Basic {}", stage.key)] {
            let wrong = ask(&stage, bare().insert_header(("authorization", value))).await;
            assert_eq!(wrong.problem(), (401, "unauthorized"));
            assert_eq!(wrong.body["detail"], "the credentials are not valid");
        }
    }
}

#[actix_web::test]
async fn what_is_not_there_and_what_is_not_allowed_are_problems_too() {
    let stage = stage();
    assert_eq!(ask(&stage, get(&stage, "/nowhere")).await.problem(), (404, "not-found"));
    assert_eq!(ask(&stage, get(&stage, "/v1/jobs/not-an-id")).await.problem(), (404, "not-found"));
    assert_eq!(ask(&stage, get(&stage, &format!("/v1/jobs/{}", uuid::Uuid::nil()))).await.problem(), (404, "not-found"));
    let wrong = ask(&stage, TestRequest::delete().uri("/v1/jobs")).await;
    assert_eq!((wrong.problem(), wrong.header("allow")), ((405, "method-not-allowed"), "POST, GET, HEAD"));
}

#[actix_web::test]
async fn a_request_keeps_the_id_it_came_with_when_that_is_fit_for_a_log() {
    let stage = stage();
    let given = ask(&stage, get(&stage, "/v1/jobs").insert_header(("x-request-id", "abc-1.2_3"))).await;
    assert_eq!(given.header("x-request-id"), "abc-1.2_3");
    let unfit = ask(&stage, get(&stage, "/v1/jobs").insert_header(("x-request-id", "a b"))).await;
    assert_eq!(unfit.header("x-request-id").len(), 36);
}

#[actix_web::test]
async fn work_that_is_not_accepted_now_may_come_again() {
    let stage = stage();
    for (error, expected) in [
        (intake::Error::Busy, (503, "overloaded")),
        (intake::Error::Lost, (503, "unavailable")),
        (intake::Error::InProgress, (409, "idempotency-in-progress")),
        (intake::Error::Store(store::Error::PoolExhausted { waiting: 50 }), (503, "overloaded")),
        (intake::Error::Store(store::Error::Unavailable("away".into())), (503, "unavailable")),
        (intake::Error::Store(store::Error::Timeout), (504, "timeout")),
    ] {
        stage.behind.lock().unwrap().refuse = Some(error);
        let seen = ask(&stage, submission(&stage, "k", &job())).await;
        assert_eq!(seen.problem(), expected);
        assert_eq!(seen.header("retry-after"), if seen.status == 504 { "" } else { "1" });
    }
}

#[actix_web::test]
async fn a_batch_is_one_commit_and_every_item_has_its_own_result_in_order() {
    let stage = stage();
    let item = |key: &str, value: Value| {
        let mut item = job();
        item["idempotency_key"] = json!(key);
        item["value"] = value;
        item
    };
    let mut unnamed = item("x", json!("1"));
    unnamed.as_object_mut().unwrap().remove("idempotency_key");
    let jobs = json!({"jobs": [item("a", json!("1")), item("b", json!(7)), item("a", json!("1")), item("a", json!("2")), unnamed, item("c", json!("3")), 5]});
    let seen = ask(&stage, post(&stage, "/v1/jobs/batch").set_json(&jobs)).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    let results = seen.body["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 400, 200, 422, 400, 202, 400]);
    assert_eq!(results[0]["job"], results[2]["job"]);
    assert_eq!(results[1]["problem"]["errors"][0]["pointer"], "/jobs/1/value");
    assert_eq!(results[4]["problem"]["errors"][0]["pointer"], "/jobs/4/idempotency_key");
    assert_eq!(results[1]["problem"]["request_id"], seen.header("x-request-id"));
    assert_eq!(stage.behind.lock().unwrap().commits, 1);
}

#[actix_web::test]
async fn what_is_no_batch_is_refused_as_a_whole() {
    let stage = stage();
    let many = json!({"jobs": vec![json!({}); 501]});
    for body in [json!([]), json!({}), json!({"jobs": {}}), json!({"jobs": []}), json!({"jobs": [], "x": 1}), many] {
        assert_eq!(ask(&stage, post(&stage, "/v1/jobs/batch").set_json(&body)).await.problem(), (400, "invalid-request"));
    }
    let most = ask(&stage, post(&stage, "/v1/jobs/batch").set_json(json!({"jobs": vec![json!({}); 500]}))).await;
    assert_eq!((most.status, most.body["results"].as_array().unwrap().len()), (200, 500));
}

fn known(stage: &Stage, number: u128, project: &str, state: JobState) -> JobId {
    let id = JobId(uuid::Uuid::from_u128(number));
    stage.behind.lock().unwrap().jobs.push(view(id, project, state));
    id
}

#[actix_web::test]
async fn a_job_shows_its_transaction_with_exact_amounts() {
    let stage = stage();
    let id = known(&stage, 1, "alpha", JobState::Completed);
    let max = Wei(primitive_types::U256::MAX);
    stage.behind.lock().unwrap().jobs[0].transaction = Some(TransactionView {
        lineage: entity::ids::LineageId(uuid::Uuid::nil()),
        signer: "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed".parse::<Address>().unwrap(),
        nonce: 4,
        state: LineageState::Mined,
        hashes: vec![Hash([0xaa; 32]), Hash([0xbb; 32])],
        mined_hash: Some(Hash([0xaa; 32])),
        block: Some((10, Hash([0xcc; 32]))),
        head: Some(12),
        price: Some((max, Wei::from(1))),
        gas_used: Some(21_000),
        effective_gas_price: Some(Wei::from(7)),
        sends: 1,
        last_sent_at: None,
        last_answer: None,
        proof: None,
    });
    let seen = ask(&stage, get(&stage, &format!("/v1/jobs/{id}"))).await;
    let hex = |byte: &str| format!("0x{}", byte.repeat(32));
    assert_eq!(
        seen.body["transaction"],
        json!({
            "signer": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "nonce": 4, "state": "mined", "hash": hex("aa"), "hashes": [hex("aa"), hex("bb")],
            "block": {"number": 10, "hash": hex("cc")}, "confirmations": 3, "max_fee_per_gas": max.to_string(), "max_priority_fee_per_gas": "1",
            "gas_used": "21000", "effective_gas_price": "7",
        })
    );
    let tag = seen.header("etag").to_owned();
    let cached = get(&stage, &format!("/v1/jobs/{id}")).insert_header(("if-none-match", tag.clone()));
    let cached = ask(&stage, cached).await;
    assert_eq!((cached.status, cached.header("etag"), &cached.body), (304, tag.as_str(), &Value::Null));
    stage.behind.lock().unwrap().jobs[0].transaction.as_mut().unwrap().head = Some(13);
    let grown = ask(&stage, get(&stage, &format!("/v1/jobs/{id}")).insert_header(("if-none-match", tag))).await;
    assert_eq!((grown.status, &grown.body["transaction"]["confirmations"]), (200, &json!(4)));
}

#[actix_web::test]
async fn another_projects_job_does_not_exist() {
    let stage = stage();
    let id = known(&stage, 1, "beta", JobState::Queued);
    stage.behind.lock().unwrap().cancelled = Some(Cancelled::Done);
    assert_eq!(ask(&stage, get(&stage, &format!("/v1/jobs/{id}"))).await.problem(), (404, "not-found"));
    assert_eq!(ask(&stage, post(&stage, &format!("/v1/jobs/{id}/cancel"))).await.problem(), (404, "not-found"));
    assert_eq!(ask(&stage, get(&stage, "/v1/jobs")).await.body, json!({"jobs": []}));
}

#[actix_web::test]
async fn who_prefers_to_wait_is_answered_at_the_next_change() {
    let stage = stage();
    let id = known(&stage, 1, "alpha", JobState::Queued);
    let task = tokio::spawn(stage.public.waiters().run(std::future::pending()));
    let path = format!("/v1/jobs/{id}");
    let tag = ask(&stage, get(&stage, &path)).await.header("etag").to_owned();
    let waiting = |tag: &str, seconds| {
        let request = get(&stage, &path).insert_header(("prefer", format!("wait={seconds}")));
        ask(&stage, request.insert_header(("if-none-match", tag)))
    };

    let started = Instant::now();
    let mut held = std::pin::pin!(waiting(&tag, 60));
    assert!(futures::poll!(held.as_mut()).is_pending());
    stage.behind.lock().unwrap().jobs[0] = JobView { version: 2, ..view(id, "alpha", JobState::Processing) };
    let seen = held.await;
    assert_eq!((seen.status, &seen.body["state"], seen.header("preference-applied")), (200, &json!("processing"), "wait=60"));
    assert_eq!(waiting(&tag, 60).await.status, 200, "a change that was missed is told at once");
    assert!(started.elapsed() < Duration::from_secs(30));

    let started = Instant::now();
    assert_eq!(waiting(seen.header("etag"), 1).await.status, 304);
    assert!(started.elapsed() >= Duration::from_secs(1));
    task.abort();
}

#[actix_web::test]
async fn nobody_waits_for_a_job_that_has_ended() {
    let stage = stage();
    let id = known(&stage, 1, "alpha", JobState::Completed);
    let started = Instant::now();
    let seen = ask(&stage, get(&stage, &format!("/v1/jobs/{id}")).insert_header(("prefer", "wait=60"))).await;
    assert_eq!(seen.status, 200);
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[actix_web::test]
async fn pages_follow_each_other_without_gap_or_repetition() {
    let stage = stage();
    for number in 1..=5 {
        known(&stage, number, "alpha", if number == 3 { JobState::Dead } else { JobState::Queued });
    }
    let (mut ids, mut path) = (Vec::new(), "/v1/jobs?state=queued&limit=3".to_owned());
    loop {
        let seen = ask(&stage, get(&stage, &path)).await;
        ids.extend(
            seen.body["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().parse::<JobId>().unwrap().0.as_u128()),
        );
        let Some(cursor) = seen.body["next_cursor"].as_str() else { break };
        path = format!("/v1/jobs?state=queued&limit=3&cursor={cursor}");
    }
    assert_eq!(ids, [5, 4, 2, 1]);
    let borrowed = path.replace("state=queued", "state=dead");
    assert_eq!(ask(&stage, get(&stage, &borrowed)).await.problem(), (400, "cursor-invalid"));
    for query in ["state=nope", "limit=0", "limit=201", "surprise=1", "limit=1&limit=2"] {
        assert_eq!(ask(&stage, get(&stage, &format!("/v1/jobs?{query}"))).await.problem(), (400, "invalid-request"), "{query}");
    }
}

#[actix_web::test]
async fn cancelling_says_what_became_of_it() {
    let stage = stage();
    let id = known(&stage, 1, "alpha", JobState::Cancelled);
    for (outcome, expected) in [
        (Cancelled::Done, 200),
        (Cancelled::Asked, 202),
        (Cancelled::Noop, 202),
        (Cancelled::TooLate(JobState::Completed), 409),
        (Cancelled::Unknown, 404),
    ] {
        stage.behind.lock().unwrap().cancelled = Some(outcome);
        let seen = ask(&stage, post(&stage, &format!("/v1/jobs/{id}/cancel"))).await;
        assert_eq!(seen.status, expected);
        if expected == 409 {
            assert_eq!((seen.problem(), &seen.body["state"]), ((409, "not-cancellable"), &json!("completed")));
        }
    }
}

#[actix_web::test]
async fn a_database_that_is_away_is_told_by_every_read() {
    let stage = stage();
    for (error, expected) in
        [(store::Error::PoolExhausted { waiting: 50 }, 503), (store::Error::Timeout, 504), (store::Error::Answer("x".into()), 500)]
    {
        stage.behind.lock().unwrap().away = Some(error);
        for path in ["/v1/jobs".to_owned(), format!("/v1/jobs/{}", uuid::Uuid::nil())] {
            assert_eq!(ask(&stage, get(&stage, &path)).await.problem().0, expected);
        }
    }
}

#[actix_web::test]
async fn the_document_is_open_to_everybody() {
    let stage = stage();
    let seen = ask(&stage, TestRequest::get().uri("/openapi.json")).await;
    assert_eq!((seen.status, &seen.body["info"]["title"]), (200, &json!("Holdfast")));
}

#[actix_web::test]
async fn the_admin_listener_answers_probes_without_and_operators_with_a_token() {
    let board = ReadinessBoard::expecting(&["postgres"]);
    let token = secrecy::SecretString::from("right");
    let app = App::new()
        .wrap(from_fn(access::around))
        .app_data(Data::new(board.clone()))
        .app_data(Data::new(auth::AdminToken::new(Some(&token))))
        .configure(routes::health)
        .service(web::scope("/admin/v1").wrap(from_fn(auth::operators_only)).route("/overview", web::get().to(actix_web::HttpResponse::Ok)))
        .default_service(web::to(server::nothing_here));
    let app = init_service(app).await;
    let get = |path: &str| TestRequest::get().uri(path);
    assert_eq!(see(&app, get("/livez").to_request()).await.status, 200);
    assert_eq!(see(&app, get("/startupz").to_request()).await.status, 503);
    let seen = see(&app, get("/readyz").to_request()).await;
    assert_eq!(
        (seen.status, seen.body),
        (503, json!({"ready": false, "checks": [{"name": "postgres", "ok": false, "detail": "not checked yet"}]}))
    );
    board.set("postgres", Ok(()));
    board.started();
    assert_eq!(see(&app, get("/startupz").to_request()).await.status, 200);
    assert_eq!(see(&app, get("/readyz").to_request()).await.body, json!({"ready": true, "checks": [{"name": "postgres", "ok": true}]}));
    assert_eq!(see(&app, get("/admin/v1/overview").to_request()).await.problem(), (401, "unauthorized"));
    assert_eq!(see(&app, get("/admin/v1/overview").insert_header(("authorization", "Bearer right")).to_request()).await.status, 200);
    assert_eq!(
        see(&app, get("/admin/v1/nope").insert_header(("authorization", "Bearer right")).to_request()).await.problem(),
        (404, "not-found")
    );
}

#[actix_web::test]
async fn a_listener_is_bound_answers_and_stops() {
    let stage = stage();
    let settings = crate::config::Http {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin_listen: "127.0.0.1:0".parse().unwrap(),
        admin_token: None,
        workers: 1,
    };
    let id = JobId(uuid::Uuid::from_u128(7));
    stage.behind.lock().unwrap().jobs.push(view(id, "alpha", JobState::Queued));
    let public = public_server(&settings, stage.public.clone(), Duration::from_secs(1)).unwrap();
    let metrics = crate::telemetry::metrics::install().unwrap();
    let configure: Configure = Arc::new(|routes| {
        routes.route("/overview", web::get().to(actix_web::HttpResponse::Ok));
    });
    let admin = admin_server(&settings, Admin { board: ReadinessBoard::default(), metrics, configure }, Duration::from_secs(1)).unwrap();
    let handles = [public.server.handle(), admin.server.handle()];
    let running = [tokio::spawn(public.server), tokio::spawn(admin.server)];
    let read = async |address: std::net::SocketAddr, head: &str, body: usize| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {body}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that has seen enough may stop reading.
        let _ = stream.write_all(&vec![b' '; body]).await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    assert!(read(public.address, "GET /v1/jobs HTTP/1.1", 0).await.starts_with("HTTP/1.1 401"));
    assert!(read(admin.address, "GET /livez HTTP/1.1", 0).await.starts_with("HTTP/1.1 200"));
    assert!(read(admin.address, "GET /admin/v1/overview HTTP/1.1", 0).await.starts_with("HTTP/1.1 403"));
    let metrics = read(admin.address, "GET /metrics HTTP/1.1", 0).await;
    assert!(metrics.contains("holdfast_http_requests_total{route=\"/livez\",method=\"GET\",status_class=\"2xx\"}"));
    let key = format!("\r\nAuthorization: Bearer {}", stage.key);
    for (address, path, status) in [
        (public.address, format!("/v1/jobs/{id} HTTP/1.1{key}"), 200),
        (public.address, format!("/v1/jobs HTTP/1.1{key}"), 200),
        (public.address, "/openapi.json HTTP/1.1".into(), 200),
        (public.address, format!("/v1/jobs/x/cancel HTTP/1.1{key}"), 405),
        (admin.address, "/livez HTTP/1.1".into(), 200),
        (admin.address, "/readyz HTTP/1.1".into(), 503),
        (admin.address, "/metrics HTTP/1.1".into(), 200),
    ] {
        let (got, head) = (read(address, &format!("GET {path}"), 0).await, read(address, &format!("HEAD {path}"), 0).await);
        let (start, body) = head.split_once("\r\n\r\n").unwrap();
        assert!(start.starts_with(&format!("HTTP/1.1 {status}")) && body.is_empty(), "{path}: {head}");
        let length = |text: &str| text.lines().find(|line| line.to_lowercase().starts_with("content-length")).map(str::to_lowercase);
        assert!(got.starts_with(&format!("HTTP/1.1 {status}")) && length(start).is_some(), "{path}: {got}");
        // The figures of one moment are not those of the next.
        assert!(path.starts_with("/metrics") || length(&got) == length(start), "{path}: {head} {got}");
    }
    let large = "POST /v1/jobs HTTP/1.1\r\nContent-Type: application/json\r\nIdempotency-Key: k";
    assert!(read(public.address, large, 4 << 20).await.starts_with("HTTP/1.1 401"));
    let large = format!("{large}\r\nAuthorization: Bearer {}", stage.key);
    assert!(read(public.address, &large, 4 << 20).await.starts_with("HTTP/1.1 413"));
    for handle in handles {
        handle.stop(true).await;
    }
    for server in running {
        server.await.unwrap().unwrap();
    }
}
