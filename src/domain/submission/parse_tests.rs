use super::*;
use proptest::prelude::*;
use serde_json::json;

fn with<T>(act: impl FnOnce(&Rules<'_>) -> T) -> T {
    let pools = [(31337, "local:relayer".to_owned()), (31337, "local:second".to_owned()), (1, "main:relayer".to_owned())];
    act(&Rules { chains: &[1, 31337], pools: &pools, now: DateTime::UNIX_EPOCH })
}

fn read(body: &Value) -> Result<NewJob, Vec<FieldError>> {
    with(|rules| parse(body, rules, ""))
}

fn call() -> Value {
    json!({
        "kind": "contract_call", "chain_id": 31337, "pool": "local:relayer",
        "to": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "data": "0x01ff",
    })
}

fn changed(field: &str, value: Value) -> Value {
    let mut body = call();
    body[field] = value;
    body
}

/// Pointer and code of every fault.
fn faults(body: &Value) -> Vec<(String, &'static str)> {
    read(body).unwrap_err().into_iter().map(|fault| (fault.pointer, fault.code)).collect()
}

fn one(body: &Value) -> (String, &'static str) {
    let mut all = faults(body);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_plain_call_gets_the_defaults() {
    let job = read(&call()).unwrap();
    assert_eq!((job.kind, job.chain_id, job.pool.as_str()), (JobKind::ContractCall, 31337, "local:relayer"));
    assert_eq!((job.value, job.data, job.gas_limit), (Wei::ZERO, vec![1, 255], None));
    assert_eq!((job.priority, job.run_at, job.metadata), (DEFAULT_PRIORITY, None, None));
}

#[test]
fn every_field_is_read() {
    let mut body = call();
    let more =
        json!({"value": "7", "gas_limit": "90000", "priority": 3, "run_at": "1970-02-01T00:00:00.123456789+01:00", "metadata": {"a": 1}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let job = read(&body).unwrap();
    assert_eq!((job.value, job.gas_limit, job.priority), (Wei::from(7), Some(90_000), 3));
    assert_eq!(job.run_at.unwrap().to_rfc3339(), "1970-01-31T23:00:00.123456+00:00");
    assert_eq!(job.metadata.as_deref(), Some("{\"a\":1}"));
}

#[test]
fn a_function_with_arguments_becomes_call_data() {
    let mut body = call();
    body.as_object_mut().unwrap().remove("data");
    body["function"] = json!("transfer(address,uint256)");
    body["args"] = json!(["0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "5"]);
    assert_eq!(&read(&body).unwrap().data[..4], [0xa9, 0x05, 0x9c, 0xbb]);
    body["args"] = json!(["0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", 5]);
    assert_eq!(one(&body), ("/args/1".into(), "malformed"));
    body["args"] = json!("x");
    assert_eq!(one(&body), ("/args".into(), "wrong-type"));
    body["function"] = json!("transfer(address,");
    body["args"] = json!([]);
    assert_eq!(one(&body), ("/function".into(), "malformed"));
    body["function"] = json!("ping()");
    body.as_object_mut().unwrap().remove("args");
    assert_eq!(read(&body).unwrap().data.len(), 4);
}

#[test]
fn data_and_function_exclude_each_other_and_one_is_needed() {
    assert_eq!(one(&changed("function", json!("ping()"))), ("/function".into(), "not-allowed"));
    assert_eq!(one(&changed("args", json!([]))), ("/args".into(), "not-allowed"));
    let mut none = call();
    none.as_object_mut().unwrap().remove("data");
    assert_eq!(one(&none), ("/data".into(), "required"));
}

#[test]
fn a_transfer_carries_no_call() {
    let mut body = changed("kind", json!("transfer"));
    body["value"] = json!("1");
    assert_eq!(one(&body), ("/data".into(), "not-allowed"));
    body.as_object_mut().unwrap().remove("data");
    body["value"] = json!("0");
    assert!(read(&body).unwrap().data.is_empty());
    body["function"] = json!("ping()");
    body["args"] = json!([]);
    assert_eq!(faults(&body), [("/function".into(), "not-allowed"), ("/args".into(), "not-allowed")]);
}

#[test]
fn a_transfer_says_how_much_and_a_call_carries_nothing_unless_it_says_so() {
    let mut body = changed("kind", json!("transfer"));
    body.as_object_mut().unwrap().remove("data");
    assert_eq!(one(&body), ("/value".into(), "required"));
    body["value"] = Value::Null;
    assert_eq!(one(&body), ("/value".into(), "wrong-type"));
    body["value"] = json!("0");
    assert_eq!(read(&body).unwrap().value, Wei::ZERO);
    assert_eq!(read(&call()).unwrap().value, Wei::ZERO);
}

#[test]
fn null_is_refused_for_every_field() {
    for field in FIELDS {
        let mut body = changed(field, Value::Null);
        if field == "args" {
            body.as_object_mut().unwrap().remove("data");
            body["function"] = json!("transfer(address,uint256)");
        } else if field == "function" {
            body.as_object_mut().unwrap().remove("data");
        }
        assert_eq!(one(&body), (format!("/{field}"), "wrong-type"));
    }
}

#[test]
fn all_faults_are_reported_at_once_with_the_prefix_of_the_item() {
    let body = json!({"kind": "x", "chain_id": 2, "pool": "p", "to": "0x1", "value": 1, "priority": 0, "a/b~c": 1, "metadata": []});
    let found = with(|rules| parse(&body, rules, "/jobs/3")).unwrap_err();
    let pointers: Vec<&str> = found.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        ["/jobs/3/a~1b~0c", "/jobs/3/kind", "/jobs/3/chain_id", "/jobs/3/to", "/jobs/3/value", "/jobs/3/priority", "/jobs/3/metadata"]
    );
    let missing = json!({});
    assert_eq!(faults(&missing).iter().map(|(pointer, _)| pointer.as_str()).collect::<Vec<_>>(), ["/kind", "/chain_id", "/pool", "/to"]);
    assert_eq!(one(&json!([])), (String::new(), "wrong-type"));
}

#[test]
fn amounts_are_decimal_strings_and_never_numbers() {
    for number in [json!(1), json!(1.5), json!(-1), json!(1e30)] {
        assert_eq!(one(&changed("value", number.clone())), ("/value".into(), "wrong-type"));
        assert_eq!(one(&changed("gas_limit", number)), ("/gas_limit".into(), "wrong-type"));
    }
    for text in
        ["", "01", "-1", "+1", "1.0", "1e3", "0x1", "115792089237316195423570985008687907853269984665640564039457584007913129639936"]
    {
        assert_eq!(one(&changed("value", json!(text))), ("/value".into(), "malformed"), "{text}");
    }
    let max = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    assert_eq!(read(&changed("value", json!(max))).unwrap().value.to_string(), max);
}

#[test]
fn an_address_needs_its_checksum_and_must_not_be_zero() {
    assert_eq!(one(&changed("to", json!("0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"))), ("/to".into(), "malformed"));
    assert_eq!(one(&changed("to", json!(format!("0x{}", "0".repeat(40))))), ("/to".into(), "not-allowed"));
    assert_eq!(one(&changed("to", json!(5))), ("/to".into(), "wrong-type"));
}

#[test]
fn call_data_is_hex_of_whole_bytes_up_to_the_cap() {
    for text in ["", "01", "0x0", "0xzz", "0X01"] {
        assert_eq!(one(&changed("data", json!(text))), ("/data".into(), "malformed"), "{text}");
    }
    let full = format!("0x{}", "00".repeat(MAX_DATA_BYTES));
    assert_eq!(read(&changed("data", json!(full))).unwrap().data.len(), MAX_DATA_BYTES);
    assert_eq!(one(&changed("data", json!(format!("{full}00")))), ("/data".into(), "too-large"));
}

#[test]
fn a_gas_limit_below_what_the_call_costs_is_refused() {
    let least = gas::least(&[1, 255]);
    assert_eq!(read(&changed("gas_limit", json!(least.to_string()))).unwrap().gas_limit, Some(i64::try_from(least).unwrap()));
    for gas in [(least - 1).to_string(), "0".into(), "16777217".into(), "18446744073709573000".into()] {
        assert_eq!(one(&changed("gas_limit", json!(gas))), ("/gas_limit".into(), "out-of-range"), "{gas}");
    }
    assert_eq!(read(&changed("gas_limit", json!("16777216"))).unwrap().gas_limit, Some(16_777_216));
}

#[test]
fn what_does_not_exist_is_answered_with_what_does() {
    let unknown = read(&changed("pool", json!("main:relayer"))).unwrap_err().remove(0);
    assert_eq!(unknown.message, "chain 31337 has no such pool; it has local:relayer, local:second");
    let unknown = read(&changed("chain_id", json!(5))).unwrap_err().remove(0);
    assert_eq!(unknown.message, "this service does not serve chain 5; it serves 1, 31337");
    assert_eq!(one(&changed("chain_id", json!("31337"))), ("/chain_id".into(), "wrong-type"));
}

#[test]
fn priority_and_time_stay_in_their_range() {
    for priority in [json!(0), json!(101), json!(-5), json!(u64::MAX)] {
        assert_eq!(one(&changed("priority", priority)), ("/priority".into(), "out-of-range"));
    }
    for priority in [json!(1.5), json!("50"), json!([50]), json!(true)] {
        assert_eq!(one(&changed("priority", priority)), ("/priority".into(), "wrong-type"));
    }
    assert_eq!(one(&changed("run_at", json!("tomorrow"))), ("/run_at".into(), "malformed"));
    assert_eq!(one(&changed("run_at", json!("1971-01-01T00:00:01Z"))), ("/run_at".into(), "out-of-range"));
    assert!(read(&changed("run_at", json!("1971-01-01T00:00:00Z"))).is_ok());
}

#[test]
fn the_order_of_metadata_makes_no_other_fingerprint() {
    let body = |text: &str| changed("metadata", serde_json::from_str(text).unwrap());
    let one = read(&body(r#"{"b": {"y": 1, "x": [1, "ü"]}, "a": null}"#)).unwrap();
    let other = read(&body(r#"{"a":null,"b":{"x":[1,"\u00fc"],"y":1}}"#)).unwrap();
    assert_eq!(one.metadata.as_deref(), Some(r#"{"a":null,"b":{"x":[1,"ü"],"y":1}}"#));
    assert_eq!(one.fingerprint(), other.fingerprint());
    assert_ne!(one.fingerprint(), read(&body(r#"{"a":null}"#)).unwrap().fingerprint());
}

#[test]
fn metadata_that_postgres_would_refuse_is_refused_here() {
    assert_eq!(one(&changed("metadata", json!({"a": "\0"}))), ("/metadata/a".into(), "not-allowed"));
    assert_eq!(one(&changed("metadata", json!({"\0": 1}))), ("/metadata/\0".into(), "not-allowed"));
    assert_eq!(one(&changed("metadata", json!({"a": [1, {"b/c": 1e300}], "z": 1}))), ("/metadata/a/1/b~1c".into(), "not-allowed"));
    let fits = json!({"a": "x".repeat(MAX_METADATA_BYTES - 9)});
    assert_eq!(fits.to_string().len() + " ".len(), MAX_METADATA_BYTES, "Postgres puts a blank after the colon");
    assert!(read(&changed("metadata", fits)).is_ok());
    assert_eq!(one(&changed("metadata", json!({"a": "x".repeat(MAX_METADATA_BYTES - 8)}))), ("/metadata".into(), "too-large"));
}

proptest! {
    #[test]
    fn no_body_makes_the_parser_panic(field in "kind|chain_id|pool|to|data|function|args|value|gas_limit|priority|run_at|metadata|x", text in "\\PC*", number: f64, which in 0..4) {
        let value = match which { 0 => json!(text), 1 => json!(number), 2 => json!([text, number]), _ => json!({ text: number }) };
        let _ = read(&changed(&field, value));
    }
}
